"""What a run report says of a build."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ValidationError

from autopipe.benchmarking.gate import Measurement
from autopipe.comparison.build import Build, BuiltTask, Contender, Fields, Kind, Time, flat
from autopipe.config.problem import dotted, shown
from autopipe.errors import ConfigError
from autopipe.report.document import RunReport, TaskReport


class _Output(BaseModel, frozen=True):
    output: str
    max_abs: float | None = None
    max_rel: float | None = None
    used: float | None = None


class _Case(BaseModel, frozen=True):
    skipped: bool
    outputs: tuple[_Output, ...]


class _Verification(BaseModel, frozen=True):
    """What is compared of `verify.json`; its own model takes numpy along."""

    reference: str
    reference_version: str = ""
    cases: tuple[_Case, ...]


def of(report: RunReport, path: Path) -> Build:
    """Return what a report says. Raises ConfigError."""
    return Build(
        kind=Kind.REPORT,
        file=str(path),
        pipeline=report.pipeline or "a pipeline that could not be read",
        facts=dict(_facts(report, path)),
        tasks=tuple(map(_task, report.tasks)) or None,
        latency=None if report.benchmark is None else dict(_contenders(report.benchmark)),
        machine=dict(flat(report.machine or {})),
    )


def _facts(report: RunReport, path: Path) -> Iterator[tuple[str, Fields]]:
    yield "outcome", {"run": report.outcome}
    if report.configuration is not None:
        yield "configuration", dict(flat(report.configuration))
    yield "versions", report.versions
    if report.package is not None:
        name = PurePosixPath(report.package.path).name
        yield "size", {"package": report.package.size}
        yield "artifacts", {name: report.package.sha256}
    if report.verification is not None:
        yield "accuracy", dict(_accuracy(_verification(report.verification, path)))


def _verification(document: dict[str, Any], path: Path) -> _Verification:
    try:
        return _Verification.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"verification.{dotted(first['loc'])}: {shown(first['msg'], 200)}"
        raise ConfigError(f"{shown(path, 4096)}: not the report of a run: {what}") from None


def _accuracy(verification: _Verification) -> Iterator[tuple[str, object]]:
    """Yield who was the reference, and of each output its largest errors over all cases."""
    checked = [case for case in verification.cases if not case.skipped]
    reference = f"{verification.reference} {verification.reference_version}".rstrip()
    yield "verification", f"{reference}, {len(checked)} cases"
    largest: dict[str, float] = {}
    for output in (output for case in checked for output in case.outputs):
        for measure in ("max_abs", "max_rel", "used"):
            value, name = getattr(output, measure), f"{output.output}.{measure}"
            if value is not None:
                largest[name] = max(value, largest.get(name, 0.0))
    yield from largest.items()


def _task(task: TaskReport) -> BuiltTask:
    decisions = {
        "engine": task.engine, "implementation": task.implementation, "calls": task.calls,
    }  # fmt: skip
    time = None if task.seconds is None else Time(task.seconds)
    return BuiltTask(task.name, task.workload, decisions, time)


def _contenders(found: Measurement) -> Iterator[tuple[str, Contender]]:
    for each in (*found.rivals, found.ours):
        time = Time(each.latency.median, each.latency.low, each.latency.high)
        yield each.name, Contender(each.version, time, disturbed=bool(found.disturbed))
