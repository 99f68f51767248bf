"""Add details of kernels to a report: times in the compiled model with bounds, and their TIR."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from autopipe.api.last_build import find_last_build
from autopipe.processes.call import run_module
from autopipe.profiling.profile import Peaks, Profile, ProfiledCall
from autopipe.report.document import KernelTime, ProfileReport, RunReport

_PROGRAM: Final = "autopipe.stages.schedule_text"


def attach_tir(
    report: RunReport, file: Path, *, store: Path | None = None, build: str | None = None
) -> RunReport:
    """Add the TIR of its kernels to the report of the last build of a pipeline file.

    A child process with TVM replays the schedules. Raises ConfigError for a file that was not
    built, StageError, SetupError.
    """
    _, action, artifacts = find_last_build(file, store=store, build=build)
    folders = {stage: str(folder) for stage, folder in artifacts.items()}
    texts = run_module(_PROGRAM, {"action": action, "artifacts": folders})["tir"]
    tasks = [task.model_copy(update={"tir": texts.get(task.workload)}) for task in report.tasks]
    return report.model_copy(update={"tasks": tuple(tasks)})


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
