"""Add a profile to a report: each kernel's time in the compiled model, and its bound."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from autopipe.profiling.profile import Peaks, Profile, ProfiledCall
from autopipe.report.document import KernelTime, ProfileReport, RunReport


def attach_profile(report: RunReport, profile: Profile) -> RunReport:
    """Add a profile to the report of its build."""
    tasks = {
        call.kernel: call.task
        for graph in report.graphs
        if graph.library == profile.library
        for call in graph.calls
    }
    groups: dict[str, list[ProfiledCall]] = defaultdict(list)
    for call in profile.calls:
        if call.kernel:
            groups[call.symbol].append(call)
    kernels = (
        _build_kernel_time(name, calls, tasks, profile.peaks) for name, calls in groups.items()
    )
    profile_report = ProfileReport(
        library=profile.library, threads=profile.threads, runs=profile.runs, whole=profile.whole,
        sum=sum(call.seconds for call in profile.calls if call.kernel),
        gflops=profile.peaks.gflops, gbps=profile.peaks.gbps, kernels=tuple(kernels),
        disturbed=profile.disturbed,
    )  # fmt: skip
    return report.model_copy(update={"profile": profile_report})


def _build_kernel_time(
    name: str, calls: Sequence[ProfiledCall], tasks: Mapping[str, int | None], peaks: Peaks
) -> KernelTime:
    return KernelTime(
        name=name, task=tasks.get(name), calls=len(calls),
        seconds=sum(call.seconds for call in calls),
        bound=sum(map(peaks.compute_bound, calls)),
    )  # fmt: skip
