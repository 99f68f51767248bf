"""Rank the kernels of a profile by the time lost against their bound or a reference runtime."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from autopipe.artifacts.document import Part
from autopipe.artifacts.model_nodes import ModelNode, format_nodes, name_kernel
from autopipe.profiling.against import compare_profiles
from autopipe.profiling.profile import Profile, ProfiledCall
from autopipe.report.escape import escape_text

_SHOWN: Final = 7
_WHOLE: Final = 10_000
"""Characters of a line that nothing cuts."""


class SlowKernel(Part, frozen=True):
    """The calls of one kernel for the same nodes: measured time and attainable time."""

    kernel: str
    nodes: tuple[str, ...]
    position: int
    """Of its slowest call, among the kernel calls of a run."""
    seconds: float
    """Of all its calls in a run."""
    wanted: float
    """Seconds of its bound, or of the reference runtime for these nodes."""


class SlowKernels(Part, frozen=True):
    """Kernels of a run, those that lose most time first."""

    case: str
    against: str
    """`bound`, or the reference runtime."""
    whole: float
    """Seconds of a run without instrumentation."""
    kernels: tuple[SlowKernel, ...]
    disturbed: str | None = None
    """Other load on the processor during the measurement, if there was any."""

    @property
    def worst(self) -> SlowKernel | None:
        """Return the kernel with the largest lost time; None where no time is lost."""
        losing = (one for one in self.kernels if one.seconds > one.wanted)
        return next(losing, None)


def rank_by_bound(profile: Profile, kernels: frozenset[str], case: str) -> SlowKernels:
    """Rank kernels by their time in excess of their bound.

    The bound of a call is that of its operations at the peak of this machine, or that of the bytes
    of its tensors at the speed of a copy. `kernels` are those of the build.
    """
    slow_kernels = []
    for calls in _group_calls(profile.calls, kernels).values():
        bound_seconds = sum(profile.peaks.compute_bound(call) for _, call in calls)
        slow_kernels.append(_build_slow_kernel(calls, bound_seconds))
    return _rank_kernels(profile, "bound", slow_kernels, case)


def rank_by_reference(  # noqa: PLR0913 -- two profiles, and how they fit together
    profile: Profile, kernels: frozenset[str], case: str, *, nodes: Sequence[ModelNode],
    runtime: str, times: Mapping[str, float],
) -> SlowKernels:  # fmt: skip
    """Rank kernels by their time in excess of that of a reference runtime for their nodes.

    Of several kernels for nodes that it computes together, each has its share of that time.
    """
    comparison = compare_profiles(profile, nodes, runtime, times)
    shares = {
        (kernel, node): group.theirs / group.ours
        for group in comparison.groups if group.ours and group.theirs
        for kernel in group.kernels for node in group.nodes
    }  # fmt: skip
    slow_kernels = []
    for calls in _group_calls(profile.calls, kernels).values():
        first = calls[0][1]
        share = next((shares[key] for node in first.nodes
                      if (key := (first.symbol, node)) in shares), None)  # fmt: skip
        if share is not None:
            slow_kernels.append(
                _build_slow_kernel(calls, share * sum(call.seconds for _, call in calls))
            )
    return _rank_kernels(profile, runtime, slow_kernels, case)


def list_slow_lines(ranking: SlowKernels) -> Iterator[str]:
    """Format the kernels that lose most time as lines, the largest loss first."""
    yield f"case {escape_text(ranking.case)}: a run takes {ranking.whole * 1e6:.1f} us"
    yield f"{'us':>9} {ranking.against + ' us':>14} {'times':>6}  kernel: nodes"
    for kernel in ranking.kernels[:_SHOWN]:
        times = f"{kernel.seconds / kernel.wanted:.1f}" if kernel.wanted else ""
        head = f"{kernel.seconds * 1e6:>9.1f} {kernel.wanted * 1e6:>14.1f} {times:>6}  "
        yield head + escape_text(
            f"{name_kernel(kernel.kernel)}: {format_nodes(kernel.nodes)}", _WHOLE
        )
    if not ranking.kernels:
        yield f"no kernel can be compared with {ranking.against}"
        return
    worst = ranking.worst
    if worst is None:
        yield f"none loses time against its {ranking.against}, as far as kernels can be compared"
        return
    lost = worst.seconds - worst.wanted
    share = lost / ranking.whole if ranking.whole else 0.0
    yield escape_text(
        f"kernel {name_kernel(worst.kernel)} ({format_nodes(worst.nodes)}) loses most: "
        f"{lost * 1e6:.1f} us a run against its {ranking.against}, {share:.0%} of the run", _WHOLE,
    )  # fmt: skip


_Calls = list[tuple[int, ProfiledCall]]


def _group_calls(calls: Sequence[ProfiledCall], kernels: frozenset[str]) -> dict[object, _Calls]:
    """Group the calls of kernels by symbol and nodes, with their positions among kernel calls."""
    kernel_calls = [call for call in calls if call.symbol in kernels]
    groups: dict[object, _Calls] = {}
    for at, call in enumerate(kernel_calls):
        groups.setdefault((call.symbol, call.nodes), []).append((at, call))
    return groups


def _build_slow_kernel(calls: _Calls, bound_seconds: float) -> SlowKernel:
    position, slowest = max(calls, key=lambda pair: pair[1].seconds)
    return SlowKernel(
        kernel=slowest.symbol, nodes=slowest.nodes, position=position,
        seconds=sum(call.seconds for _, call in calls), wanted=bound_seconds,
    )  # fmt: skip


def _rank_kernels(
    profile: Profile, against: str, kernels: Sequence[SlowKernel], case: str
) -> SlowKernels:
    ranked_kernels = sorted(kernels, key=lambda one: one.wanted - one.seconds)
    return SlowKernels(
        case=case, against=against, whole=profile.whole, kernels=tuple(ranked_kernels),
        disturbed=profile.disturbed,
    )  # fmt: skip
