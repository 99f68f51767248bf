"""A profile as text: one line a row in a pipe, wrapped to the width of a terminal."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from autopipe.artifacts.model_nodes import format_nodes, name_kernel
from autopipe.profiling.against import ComparedProfile
from autopipe.profiling.profile import Profile, ProfileRow
from autopipe.report.escape import escape_text

SortKey = Literal["time", "order", "calls", "name"]

_WHOLE: Final = 10_000
"""Characters of a line that is not truncated."""
_TINY: Final = 0.05
"""Share of a run from which unexplained time is reported."""


def list_profile_lines(profile: Profile, sort: SortKey, width: int) -> Iterator[str]:
    """Yield the table of a profile in `width` columns."""
    yield f"{'share':>6} {'us':>9} {'calls':>5} {'GFLOPS':>7} {'GB/s':>6}  kernel: nodes"
    for row in sort_rows(profile.rows, sort):
        rate = "" if row.gflops is None else f"{row.gflops:.1f}"
        bandwidth = "" if row.gbps is None else f"{row.gbps:.1f}"
        head = (
            f"{row.share:>6.1%} {row.seconds * 1e6:>9.1f} {row.calls:>5} {rate:>7} {bandwidth:>6}  "
        )
        yield from _wrap_text(head, escape_text(_describe_row(row), _WHOLE), width)
    yield ""
    for line in _list_summary_lines(profile):
        yield from _wrap_text("", line, width)


def sort_rows(rows: Sequence[ProfileRow], key: SortKey) -> list[ProfileRow]:
    """Sort rows by descending time or calls, by order of execution, or by name."""
    if key == "time":
        return sorted(rows, key=lambda row: -row.seconds)
    if key == "calls":
        return sorted(rows, key=lambda row: -row.calls)
    return sorted(rows, key=lambda row: name_kernel(row.symbol)) if key == "name" else list(rows)


def list_comparison_lines(comparison: ComparedProfile, width: int) -> Iterator[str]:
    """Yield the table of a comparison, in ascending order of our advantage."""
    yield f"{'ours us':>9} {'theirs us':>9} {'ratio':>6}  nodes, against {comparison.runtime}"
    for group in comparison.groups:
        ratio = "" if group.ratio is None or not group.ours else f"{group.ratio:.2f}"
        names = (
            ", ".join(group.nodes) or f"only {comparison.runtime}: {', '.join(group.theirs_nodes)}"
        )
        head = f"{group.ours * 1e6:>9.1f} {group.theirs * 1e6:>9.1f} {ratio:>6}  "
        yield from _wrap_text(head, escape_text(names, _WHOLE), width)
    yield ""
    yield from _wrap_text(
        "",
        f"whole run: ours {comparison.ours * 1e6:.1f} us, {comparison.runtime} "
        f"{comparison.theirs * 1e6:.1f} us: ratio {comparison.ours / comparison.theirs:.2f}",
        width,
    )
    yield "no time of theirs: they fuse it into another node's kernel, or fold it"


def _describe_row(row: ProfileRow) -> str:
    if not row.kernel:
        return row.symbol
    return f"{name_kernel(row.symbol)}: {format_nodes(row.nodes, added=row.added)}"


def _list_summary_lines(profile: Profile) -> Iterator[str]:
    run_seconds, unexplained = profile.whole, profile.whole - profile.sum
    shapes = ", ".join(
        f"{escape_text(name)} {list(shape)}" for name, shape in profile.shapes.items()
    )
    yield f"{profile.library} on {profile.threads} threads, {profile.runs} runs, of {shapes}"
    total = f"sum {profile.sum * 1e6:.1f} us of {run_seconds * 1e6:.1f} us unwatched"
    yield f"{total}: {_describe_difference(profile, unexplained)}"
    yield f"a call with checks and copies of inputs and outputs: {profile.call * 1e6:.1f} us"
    peaks = profile.peaks
    yield (
        f"peaks of this machine: {peaks.gflops:.1f} GFLOPS (product of float32 matrices), "
        f"{peaks.gbps:.1f} GB/s (copy)"
    )


def _describe_difference(profile: Profile, unexplained: float) -> str:
    share = profile.difference
    count = len(profile.calls)
    if abs(share) < _TINY:
        return f"{share:+.1%} are not in a row"
    if unexplained > 0:
        return (
            f"{share:+.1%} is spent between {count} calls, {unexplained / count * 1e6:.2f} us each"
        )
    return f"{share:+.1%}: watching slows {count} calls by {-unexplained / count * 1e6:.2f} us each"


def _wrap_text(head: str, text: str, width: int) -> Iterator[str]:
    """Wrap a text after its figures to the width, with a hanging indent."""
    if len(head) + len(text) <= width:
        yield head + text
        return
    indent = " " * (len(head) or 4)
    yield from textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    )
