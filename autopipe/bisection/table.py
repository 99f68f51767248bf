"""A bisection as text."""

from collections.abc import Iterator
from typing import Final

from autopipe.artifacts.model_nodes import format_nodes, name_kernel
from autopipe.bisection.bisection import Bisection, CallDifference, Cause
from autopipe.config.dimension import append_sizes
from autopipe.report.escape import escape_text
from autopipe.report.units import format_plural

_WHOLE: Final = 10_000
"""Characters of a line that is not truncated."""
_AROUND: Final = 3
"""Calls that are shown before and behind the first that is wrong."""


def list_bisection_lines(bisection: Bisection) -> Iterator[str]:
    """Yield the numbers of comparisons, and the calls around the first wrong one."""
    yield (
        f"case {escape_text(append_sizes(bisection.case, bisection.sizes))}, {bisection.library}: "
        f"{_format_counts(bisection)}"
    )
    yield from (f"output {escape_text(text, _WHOLE)}" for text in bisection.wrong)
    yield from (f"note: {escape_text(text, _WHOLE)}" for text in bisection.notes)
    if bisection.first is None:
        return
    yield ""
    yield f"{'call':>6} {'plain loops':>12} {bisection.runtime or 'reference':>12}  kernel: nodes"
    for at in range(
        max(0, bisection.first - _AROUND), min(len(bisection.calls), bisection.first + _AROUND + 1)
    ):
        call, mark = bisection.calls[at], ">" if at == bisection.first else " "
        plain, reference = _format_error(call.plain), _format_error(call.reference)
        text = escape_text(
            f"{name_kernel(call.kernel)}: {format_nodes(call.nodes, added=call.added)}", _WHOLE
        )
        yield f"{mark}{at + 1:>5} {plain:>12} {reference:>12}  {text}"
    yield "errors are relative to the largest value; ! is more than is allowed"


def format_verdict(bisection: Bisection) -> str:
    """Format the verdict: the first wrong kernel, or that none is wrong."""
    if bisection.first is None:
        if bisection.wrong:
            outputs = format_plural(len(bisection.wrong), "output")
            return f"wrong: {outputs}, though each kernel that can be compared agrees"
        return "none leaves: each kernel computes what it should"
    call = bisection.calls[bisection.first]
    where = escape_text(
        f"kernel {name_kernel(call.kernel)}, call {bisection.first + 1} of {len(bisection.calls)} "
        f"({format_nodes(call.nodes, added=call.added)})",
        _WHOLE,
    )
    if bisection.cause is Cause.CRASH:
        return f"{where} does not return"
    if bisection.cause is Cause.REFERENCE:
        off = f"largest error {_format_numbers(call.reference)}"
        value = f"value {escape_text(call.tensor or '')} of {bisection.runtime}"
        agreement = "while it computes what its plain loops do" if call.plain else ""
        return f"{where} is the first that leaves {value}: {off}; {agreement}".rstrip("; ")
    off = f"largest error {_format_numbers(call.plain)}"
    return f"{where}, scheduled by {call.scheduled}, leaves its plain loops: {off}"


def _format_counts(bisection: Bisection) -> str:
    plain = sum(call.plain is not None for call in bisection.calls)
    values = sum(call.reference is not None for call in bisection.calls)
    with_values = f", {values} with values of {bisection.runtime}" if bisection.runtime else ""
    return (
        f"{len(bisection.calls)} kernel calls, {plain} compared with their plain loops{with_values}"
    )


def _format_error(difference: CallDifference | None) -> str:
    if difference is None:
        return "-"
    mark = "" if difference.agrees else "!"
    value = difference.max_rel
    return mark + ("not finite" if value is None else f"{value:.2g}")


def _format_numbers(difference: CallDifference | None) -> str:
    if difference is None or difference.max_abs is None or difference.max_rel is None:
        return "is not finite"
    return f"{difference.max_abs:.6g}, {difference.max_rel:.3g} of the largest expected value"
