"""Which kernels of a profile lose most time, against their bound or a reference runtime."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from autopipe.artifacts.document import Part
from autopipe.artifacts.model_nodes import ModelNode, name_kernel
from autopipe.profiling.against import compare_profiles
from autopipe.profiling.profile import Profile, ProfiledCall
from autopipe.report.escape import escape_text

_SHOWN: Final = 7
_WHOLE: Final = 10_000
"""Characters of a line that nothing cuts."""


class SlowKernel(Part, frozen=True):
    """A kernel for the same nodes, beside what it could take."""

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
    """Seconds of a run that nothing watches."""
    kernels: tuple[SlowKernel, ...]
    disturbed: str | None = None
    """What took the processor meanwhile, if anything did."""

    @property
    def worst(self) -> SlowKernel | None:
        """Return the kernel that loses most time; None where none loses any."""
        losing = (one for one in self.kernels if one.seconds > one.wanted)
        return next(losing, None)


def rank_by_bound(profile: Profile, kernels: frozenset[str], case: str) -> SlowKernels:
    """Rank kernels by the time that they take beyond their bound.

    The bound of a call is that of its operations at the peak of this machine, or that of the bytes
    of its tensors at the speed of a copy. `kernels` are those of the build.
    """
    found = []
    for calls in _group_calls(profile.calls, kernels).values():
        wanted = sum(profile.peaks.compute_bound(call) for _, call in calls)
        found.append(_build_slow_kernel(calls, wanted))
    return _rank_kernels(profile, "bound", found, case)


def rank_by_reference(  # noqa: PLR0913 -- two profiles, and how they fit together
    profile: Profile, kernels: frozenset[str], case: str, *, nodes: Sequence[ModelNode],
    runtime: str, times: Mapping[str, float],
) -> SlowKernels:  # fmt: skip
    """Rank kernels by the time that they take beyond that of a reference runtime for their nodes.

    Of several kernels for nodes that it computes together, each has its share of that time.
    """
    compared = compare_profiles(profile, nodes, runtime, times)
    shares = {
        (kernel, node): group.theirs / group.ours
        for group in compared.groups if group.ours and group.theirs
        for kernel in group.kernels for node in group.nodes
    }  # fmt: skip
    found = []
    for calls in _group_calls(profile.calls, kernels).values():
        first = calls[0][1]
        share = next((shares[key] for node in first.nodes
                      if (key := (first.symbol, node)) in shares), None)  # fmt: skip
        if share is not None:
            found.append(_build_slow_kernel(calls, share * sum(call.seconds for _, call in calls)))
    return _rank_kernels(profile, runtime, found, case)


def list_slow_lines(made: SlowKernels) -> Iterator[str]:
    """Yield the slowest kernels for their work, the worst first."""
    yield f"case {escape_text(made.case)}: a run takes {made.whole * 1e6:.1f} us"
    yield f"{'us':>9} {made.against + ' us':>14} {'times':>6}  kernel: nodes"
    for one in made.kernels[:_SHOWN]:
        times = f"{one.seconds / one.wanted:.1f}" if one.wanted else ""
        head = f"{one.seconds * 1e6:>9.1f} {one.wanted * 1e6:>14.1f} {times:>6}  "
        yield head + escape_text(f"{name_kernel(one.kernel)}: {_format_nodes(one)}", _WHOLE)
    if not made.kernels:
        yield f"no kernel can be compared with {made.against}"
        return
    worst = made.worst
    if worst is None:
        yield f"none loses time against its {made.against}, as far as kernels can be compared"
        return
    lost = worst.seconds - worst.wanted
    share = lost / made.whole if made.whole else 0.0
    yield escape_text(
        f"kernel {name_kernel(worst.kernel)} ({_format_nodes(worst)}) loses most: "
        f"{lost * 1e6:.1f} us a run against its {made.against}, {share:.0%} of the run", _WHOLE,
    )  # fmt: skip


def _format_nodes(kernel: SlowKernel) -> str:
    return ", ".join(kernel.nodes) or "no node is known"


_Calls = list[tuple[int, ProfiledCall]]


def _group_calls(calls: Sequence[ProfiledCall], kernels: frozenset[str]) -> dict[object, _Calls]:
    """Return the calls of kernels for the same nodes, each with its position among kernel calls."""
    own = [call for call in calls if call.symbol in kernels]
    found: dict[object, _Calls] = {}
    for at, call in enumerate(own):
        found.setdefault((call.symbol, call.nodes), []).append((at, call))
    return found


def _build_slow_kernel(calls: _Calls, wanted: float) -> SlowKernel:
    position, slowest = max(calls, key=lambda pair: pair[1].seconds)
    return SlowKernel(
        kernel=slowest.symbol, nodes=slowest.nodes, position=position,
        seconds=sum(call.seconds for _, call in calls), wanted=wanted,
    )  # fmt: skip


def _rank_kernels(
    profile: Profile, against: str, found: Sequence[SlowKernel], case: str
) -> SlowKernels:
    ranked = sorted(found, key=lambda one: one.wanted - one.seconds)
    return SlowKernels(
        case=case, against=against, whole=profile.whole, kernels=tuple(ranked),
        disturbed=profile.disturbed,
    )  # fmt: skip
