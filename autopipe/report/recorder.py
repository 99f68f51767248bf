"""Record the events of a run, and summarize them as a report."""

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from autopipe.artifacts.benchmark import BenchmarkReport, CheckedGate, Outcome
from autopipe.artifacts.verification import Verification
from autopipe.config.pipeline import Pipeline
from autopipe.pipeline.events import (
    Emit,
    Event,
    Measured,
    RunFinished,
    StageCached,
    StageFailed,
    StageFinished,
    StageSkipped,
    StageStarted,
    Tuned,
    Warn,
)
from autopipe.records.record import Record
from autopipe.report import document
from autopipe.report.document import Notice, RunReport, StageReport
from autopipe.report.task_reports import TaskSources, report_graphs, report_tasks
from autopipe.report.tuning_course import follow_tuning
from autopipe.report.wording import describe_error
from autopipe.store import files
from autopipe.tasks.shares import format_percent_floored


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts of a run besides its events."""

    pipeline: Pipeline | None
    """None if its file cannot be read."""
    configuration: Mapping[str, Any] | None
    stages: Sequence[str]
    """The requested stages."""
    machine: Mapping[str, Any] | None
    versions: Mapping[str, str | None]
    places: Mapping[str, str]
    """Folders of this machine, with their replacements in the report."""


@dataclass(slots=True)
class Recorder:
    """Forwards events, and reads artifacts as soon as they exist."""

    emit: Emit
    artifact: Callable[[str], Path]
    """Returns the path of an artifact by its digest."""
    trials: Callable[[str], Sequence[Record]] = lambda _: ()
    """Returns the trials of a tuning session, oldest first."""
    _stages: dict[str, StageReport] = field(default_factory=dict)
    _warnings: list[Notice] = field(default_factory=list)
    _known: TaskSources = field(default_factory=TaskSources)
    _verification: Verification | None = None
    _measured: BenchmarkReport | None = None
    _tuned: Tuned | None = None
    _end: RunFinished | None = None
    _started: float = 0.0
    """Start of the last stage, by the monotonic clock."""

    def __call__(self, event: Event, /) -> None:
        """Record and forward an event."""
        match event:
            case StageStarted(stage=name):
                self._started = time.monotonic()
                self._stages[name] = StageReport(stage=name, state="interrupted")
            case StageCached(stage=name, digest=digest):
                self._stages[name] = StageReport(stage=name, state="cached", digest=digest)
                self._read(name, digest)
            case StageSkipped(stage=name, reason=reason):
                self._stages[name] = StageReport(stage=name, state="skipped", summary=reason)
            case StageFinished(stage=name, digest=digest, seconds=spent, summary=summary):
                self._stages[name] = StageReport(
                    stage=name, state="finished", seconds=spent, digest=digest, summary=summary
                )
                self._read(name, digest)
            case StageFailed(stage=name, error=error):
                self._stages[name] = StageReport(
                    stage=name,
                    state="failed",
                    error=describe_error(error),
                    seconds=self._measure_seconds(name),
                )
            case Measured():
                self._remember_measured(event)
            case Tuned():
                self._tuned = event
            case Warn(stage=name, message=message):
                self._warnings.append(Notice(stage=name, message=message))
            case RunFinished():
                self._end = event
            case _:
                pass
        self.emit(event)

    def report(self, about: RunInfo, exit_code: int, error: BaseException | None) -> RunReport:
        """Build the report of the run."""
        end = self._end or RunFinished(exit_code=exit_code, seconds=0.0)
        library, graphs = self._known.library, report_graphs(self._known)
        names = dict.fromkeys([*about.stages, *self._stages])
        rows = (self._stages.get(n) or StageReport(stage=n, state="not_run") for n in names)
        report = RunReport(
            pipeline=about.pipeline and about.pipeline.name,
            configuration=about.configuration and dict(about.configuration),
            exit_code=exit_code,
            outcome=_describe_outcome(exit_code),
            error=None if error is None else describe_error(error),
            seconds=end.seconds,
            stages=tuple(rows),
            warnings=tuple(self._warnings),
            tasks=report_tasks(self._known, graphs),
            graphs=graphs,
            headroom=self._known.tuning.headroom if self._known.tuning else (),
            tuning=self._build_tuning_course(),
            searched_share=self._tuned and self._tuned.searched,
            measured_share=self._tuned and self._tuned.measured,
            steady_share=self._tuned and self._tuned.steady,
            claimed=self._tuned and self._tuned.claimed,
            verification=self._verification,
            benchmark=self._measured,
            gates=(*self._share(about.pipeline), *(self._measured.gates if self._measured else ())),
            package=None if end.package is None else describe_package_file(Path(end.package)),
            versions={**about.versions, **(library.versions if library else {})},
            machine=about.machine and dict(about.machine),
            target=library and library.target,
            inputs=library.inputs if library else (),
            outputs=library.outputs if library else (),
        )
        return RunReport.model_validate(
            replace_places(report.model_dump(mode="json"), about.places)
        )

    def _build_tuning_course(self) -> document.TuningCourse | None:
        """Build the course of tuning, if this store has its trials."""
        tuning, library = self._known.tuning, self._known.library
        if tuning is None or library is None:
            return None
        calls = {task.workload: task.calls for task in library.tasks}
        trials = self.trials(tuning.session)
        return follow_tuning(trials, calls, ended=tuning.ended, seconds=tuning.seconds)

    def _measure_seconds(self, stage: str) -> float | None:
        """Return the duration of a stage that ends now; None for one that never started."""
        return time.monotonic() - self._started if stage in self._stages else None

    def _remember_measured(self, event: Measured) -> None:
        """Record the measurement of a stage that leaves no artifact of it."""
        if event.stage == "verify":
            self._verification = Verification.model_validate(event.document)
        else:
            self._measured = BenchmarkReport.model_validate(event.document)

    def _read(self, stage: str, digest: str) -> None:
        folder = self.artifact(digest)
        with suppress(FileNotFoundError, NotADirectoryError):
            if stage == "verify":
                self._verification = Verification.read(folder)
            else:
                self._known.read(stage, folder)

    def _share(self, pipeline: Pipeline | None) -> list[CheckedGate]:
        """Check the gates on the shares that this store has tuned."""
        if pipeline is None or self._tuned is None:
            return []
        gates = []
        for name, (word, limit) in pipeline.gates.shares().items():
            share = getattr(self._tuned, word)
            outcome = Outcome.PASSED if share >= limit else Outcome.FAILED
            finding = (
                f"{format_percent_floored(share)} of the kept tasks' time was {word} here,"
                f" {format_percent_floored(limit)} is required"
            )
            gates.append(CheckedGate(gate=f"gates.{name}", outcome=outcome, found=finding))
        return gates


def replace_places(value: JsonValue, places: Mapping[str, str]) -> JsonValue:
    """Replace the folders of this machine in every text, as reports may be published."""
    if isinstance(value, str):
        value = value.encode("utf-8", "backslashreplace").decode()  # halves of characters
        for place, name in sorted(places.items(), key=lambda pair: -len(pair[0])):
            value = re.sub(rf"(?<![\w.-]){re.escape(place)}(?![\w.-])", lambda _: name, value)  # noqa: B023
        return value
    if isinstance(value, dict):
        return {name: replace_places(inner, places) for name, inner in value.items()}
    return [replace_places(item, places) for item in value] if isinstance(value, list) else value


def describe_package_file(path: Path) -> document.PackageReport:
    """Describe the package file. Raises StoreError if it is missing."""
    with files.wrap_os_errors(path), path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return document.PackageReport(path=str(path), size=file.tell(), sha256=sha256)


def _describe_outcome(exit_code: int) -> document.Outcome:
    if exit_code == 0:
        return "finished"
    return "interrupted" if exit_code > 128 else "failed"  # noqa: PLR2004 -- 128 and the signal
