"""Read the facts of a build from a run report."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from autopipe.artifacts.benchmark import BenchmarkReport
from autopipe.artifacts.verification import CaseOutcome, Verification
from autopipe.comparison.build import (
    Build,
    BuiltTask,
    ContenderTime,
    Fields,
    Time,
    flatten_document,
)
from autopipe.lock.recognize import FileKind
from autopipe.report.document import RunReport, TaskReport


def describe_report(report: RunReport, path: Path) -> Build:
    """Build the facts of a report."""
    return Build(
        kind=FileKind.REPORT,
        file=str(path),
        pipeline=report.pipeline or "a pipeline that could not be read",
        facts=dict(_list_facts(report)),
        tasks=tuple(map(_describe_task, report.tasks)) or None,
        latency=None if report.benchmark is None else dict(_list_contender_times(report.benchmark)),
        machine=dict(flatten_document(report.machine or {})),
    )


def _list_facts(report: RunReport) -> Iterator[tuple[str, Fields]]:
    yield "outcome", {"run": report.outcome}
    if report.configuration is not None:
        yield "configuration", dict(flatten_document(report.configuration))
    yield "versions", report.versions
    if report.sources:
        yield "sources", report.sources
    if report.package is not None:
        name = PurePosixPath(report.package.path).name
        yield "size", {"package": report.package.size}
        yield "artifacts", {name: report.package.sha256}
    if report.verification is not None:
        yield "accuracy", dict(_list_accuracy_facts(report.verification))


def _list_accuracy_facts(verification: Verification) -> Iterator[tuple[str, object]]:
    """Yield the reference, and the largest errors of each output over all cases."""
    compared_cases = [
        case for case in verification.cases if case.outcome is not CaseOutcome.SKIPPED
    ]
    reference = f"{verification.reference} {verification.reference_version}".rstrip()
    yield "verification", f"{reference}, {len(compared_cases)} cases"
    if verification.rounded_by is not None:
        yield "rounded_by", verification.rounded_by
    largest: dict[str, float] = {}
    for output in (output for case in compared_cases for output in case.outputs):
        for measure in ("max_abs", "max_rel", "used"):
            value, name = getattr(output, measure), f"{output.output}.{measure}"
            if value is not None:
                largest[name] = max(value, largest.get(name, 0.0))
    yield from largest.items()


def _describe_task(task: TaskReport) -> BuiltTask:
    decisions = {
        "engine": task.engine, "implementation": task.implementation, "calls": task.calls,
    }  # fmt: skip
    time = None if task.seconds is None else Time(task.seconds)
    return BuiltTask(task.name, task.workload, decisions, time)


def _list_contender_times(benchmark: BenchmarkReport) -> Iterator[tuple[str, ContenderTime]]:
    for contender in (*benchmark.competitors, benchmark.ours):
        time = Time(contender.latency.median, contender.latency.low, contender.latency.high)
        yield (
            contender.name,
            ContenderTime(contender.version, time, disturbed=bool(benchmark.disturbed)),
        )
