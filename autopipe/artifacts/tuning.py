"""`tuning.json` and `records.jsonl`: the results of the stage *tune*.

Reading and writing preserves the bytes, because a lock has the digest of its records.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

from pydantic import AfterValidator, Field, StringConstraints

from autopipe import foreign
from autopipe.artifacts.document import LARGEST, ArtifactDocument, Part, parse_document
from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.artifacts.numbers import Amount, Count, Hash, Name, TaskName, Time

RECORDS: Final = "records.jsonl"


def _check_schedule(text: str) -> str:
    """Check that a text may be a schedule: a list is a trace, an object a template's."""
    if not isinstance(foreign.parse(text), list | dict):
        raise ValueError("neither a trace nor a template")  # noqa: TRY004 -- of a file
    return text


def _check_setting(text: str) -> str:
    """Check that a text may be the setting of a template."""
    if not isinstance(foreign.parse(text), dict):
        raise ValueError("no setting of a template")  # noqa: TRY004 -- of a file
    return text


class _Kept(Part, frozen=True):
    """A part of the results of tuning."""

    def document(self) -> dict[str, Any]:
        """Serialize it as JSON with only the fields that were set."""
        return self.model_dump(mode="json", exclude_unset=True)


class ListedFailure(_Kept, frozen=True):
    """Work that crashed, hung, exceeded its memory or raised an exception, twice."""

    engine: str
    implementation: str
    doing: str
    """The kind of work."""
    how: str
    """How it ended."""
    retried: bool
    folder: Annotated[str, StringConstraints(max_length=1 << 20)]
    """Its quarantine folder, relative to the tuning records."""


class ContenderResult(_Kept, frozen=True):
    """The result of one arm of a task: an engine on an implementation."""

    engine: str
    """The engine that proposed its schedules; `static` or `default` without a search."""
    implementation: str
    trials: Count
    failed: Count
    seconds: Amount | None
    """Median of one call with its best schedule; null if none of its trials gave a time."""
    stopped: str | None
    """Why it got no more trials; null if it ran until the end."""


Ratio = tuple[Amount, Amount, Amount]
"""A ratio of times, and the bounds of its confidence interval."""


class Replaced(_Kept, frozen=True):
    """The incumbent of a task, the winner of its trials, that a challenger replaced."""

    engine: Name
    implementation: Name
    schedule: Annotated[str, StringConstraints(max_length=1 << 24), AfterValidator(_check_schedule)]
    """As in a record."""


class ModelTime(_Kept, frozen=True):
    """The result of the in-model comparison of a task."""

    seconds: Amount
    """Median of one call of the winner."""
    finalists: Count
    """Number of finalists."""
    replaced: Replaced | None
    """The replaced incumbent; null if it won."""
    ratio: Ratio | None
    """Time of the fastest challenger divided by that of the incumbent; null without a
    challenger."""


class ComparisonReport(_Kept, frozen=True):
    """The result of the in-model comparison."""

    rounds: Count
    """Number of rounds of each model."""
    sure: Amount
    """Confidence level of the intervals."""
    tasks: Count
    """Number of tasks with more than one finalist."""
    decided: Count
    """Number of tasks with a significant difference."""
    changed: Count
    """Number of tasks whose incumbent was replaced."""
    kernels: Amount
    """Median time of all kernels in one run of the model, with all winners."""
    rest: Amount
    """Time of a run outside of kernels: calls, and storage."""
    whole: Amount = 0.0
    """Seconds of a run of the package, or if there was no time for that, in the process that timed
    the kernels. 0 if it was not measured."""
    times: dict[Hash, Amount]
    """Median in-model time of one call of each task, including untuned ones, by workload."""
    sizes: dict[Name, Count] = {}
    """Sizes of the run of a model with dynamic shapes; omitted for others."""
    gain: Ratio | None
    """Time of the model with all winners divided by that with the schedules of an untuned build;
    null if these are equal. A schedule that failed its trial is replaced by the incumbent."""

    @property
    def run(self) -> float:
        """Seconds of a run: its kernels and the rest."""
        return self.kernels + self.rest


class TunedTask(_Kept, frozen=True):
    """The result of tuning a task."""

    task: Count
    """Its index in the table of tasks."""
    name: TaskName
    workload: Hash
    trials: Count
    failed: Count
    engine: str | None
    """The winner; null if no schedule has a time."""
    implementation: str | None
    seconds: Amount | None
    """Median of one call with the best schedule."""
    stopped: str | None
    """Why its search stopped; null if it ran until the end."""
    rule: int | None
    """Index of the matching rule of the policy; null for none."""
    share: Amount
    """Its share of the model's time before the search."""
    failures: tuple[ListedFailure, ...]
    contenders: tuple[ContenderResult, ...]
    """The arms, the fastest first."""
    over_next: Amount | None
    """Time of the next arm divided by that of the winner; null if none has a time."""
    over_start: Amount | None
    """The same of the initial candidates."""
    in_model: ModelTime | None = None
    """The result of the in-model comparison; omitted if that did not run."""


class TuningReport(ArtifactDocument, _Kept, frozen=True):
    """The report of tuning."""

    FILE: ClassVar[str] = "tuning.json"

    ended: str
    """Why it ended."""
    left_out: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """Kinds of work for which there was no time; omitted if there are none."""
    seconds: Amount
    """Duration."""
    session: str
    """Id of the session that measured."""
    shares: dict[str, Amount] | None = None
    """Shares of the time that were searched, measured and steady; omitted if some of the tasks are
    from a lock."""
    comparison: ComparisonReport | None = None
    """The result of the in-model comparison; omitted without one."""
    sized_comparisons: Annotated[tuple[ComparisonReport, ...], Field(max_length=100)] = ()
    """The same per specialized size of a model with dynamic shapes, in place of the field above."""
    headroom: tuple[TaskHeadroom, ...] = ()
    """The headroom of each task with a time; omitted if there are none."""
    device: Annotated[dict[Name, str | int], Field(max_length=100)] | None = None
    """The device that measured; omitted if it is the machine of the run."""
    tasks: tuple[TunedTask, ...]
    """Every task that was tuned, in the order of the model."""

    @property
    def comparisons(self) -> tuple[ComparisonReport, ...]:
        """The in-model comparisons: one, one for each specialized size, or none."""
        return (self.comparison,) if self.comparison else self.sized_comparisons


class DynamicSetting(_Kept, frozen=True):
    """The schedule of a kernel with dynamic shapes: the best over all its specialized sizes."""

    engine: Name
    implementation: Name
    schedule: Annotated[str, StringConstraints(max_length=1 << 16), AfterValidator(_check_setting)]
    """A template and its knobs, as JSON."""

    def of(self, record: "BestRecord") -> "BestRecord":
        """Return a copy of a record with this schedule."""
        schedule = {name: getattr(self, name) for name in DynamicSetting.model_fields}
        return record.model_copy(update=schedule)


class BestRecord(_Kept, frozen=True):
    """The best schedule of a workload."""

    workload: Hash
    engine: Name
    implementation: Name
    schedule: Annotated[str, StringConstraints(max_length=1 << 24), AfterValidator(_check_schedule)]
    """The schedule to replay: TVM's trace, or a template and its knobs, as JSON."""
    seconds: Annotated[tuple[Time, ...], Field(min_length=1, max_length=10_000)]
    """Time of one call, one value per repeat."""
    trials: Count
    """Number of trials of its search."""
    clock: Annotated[str, StringConstraints(max_length=80)] | None = None
    """The clock of these times: null for a loop around the kernel alone."""
    device: Annotated[dict[Name, str | int], Field(max_length=100)] | None = None
    """The device of these times; omitted if it is the machine that tuned."""
    inside: Annotated[tuple[Time, ...], Field(max_length=10_000)] = ()
    """In-model time of one call, one value per round; omitted without an in-model comparison."""
    dynamic_settings: Annotated[dict[Hash, DynamicSetting], Field(max_length=1000)] = {}
    """For kernels with dynamic shapes that specialize to this workload, the best schedule over all
    specialized sizes, by their workloads; omitted if it is this record's schedule."""

    @property
    def line(self) -> str:
        """Return its line in `records.jsonl`."""
        return json.dumps(self.document(), sort_keys=True)


class TuningResult(NamedTuple):
    """The contents of both files of a RECORDS artifact."""

    report: TuningReport
    records: Mapping[str, BestRecord]
    """The best record of each workload that has one, by workload."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a RECORDS artifact. Raises OSError and MalformedError."""
        return cls(TuningReport.read(folder), read_records(folder))

    @classmethod
    def untuned(cls) -> Self:
        """Return the result for a model without tuning."""
        return cls(TuningReport(ended="not tuned", seconds=0.0, session="", tasks=()), {})

    def write(self, folder: Path) -> None:
        """Write the files of a RECORDS artifact."""
        write_records(self.records.values(), folder)
        self.report.write(folder)

    @property
    def tasks(self) -> dict[str, TunedTask]:
        """The result of each task, by workload."""
        return {task.workload: task for task in self.report.tasks}


def read_records(folder: Path) -> dict[str, BestRecord]:
    """Read `records.jsonl` of an artifact, by workload. Raises OSError, and MalformedError."""
    lines = foreign.read(folder / RECORDS, LARGEST).splitlines()
    return {
        record.workload: record for record in (parse_document(BestRecord, line) for line in lines)
    }


def write_records(records: Iterable[BestRecord], folder: Path) -> None:
    """Write `records.jsonl` of an artifact: a line a record, sorted by workload."""
    sorted_records = sorted(records, key=lambda record: record.workload)
    text = "".join(f"{record.line}\n" for record in sorted_records)
    (folder / RECORDS).write_text(text, encoding="utf-8")
