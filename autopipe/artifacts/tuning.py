"""`tuning.json` and `records.jsonl`: what the stage *tune* found.

What is read here is written again with the same bytes: a lock names the digest of its records.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

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
    """A part of what tuning found."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON with the fields that it was made with, no more."""
        return self.model_dump(mode="json", exclude_unset=True)


class ListedFailure(_Kept, frozen=True):
    """What crashed, hung, took too much memory or raised something, twice."""

    engine: str
    implementation: str
    doing: str
    """What was done with the schedule."""
    how: str
    """How that ended."""
    retried: bool
    folder: Annotated[str, StringConstraints(max_length=1 << 20)]
    """Where it is kept, relative to the tuning records."""


class ContenderResult(_Kept, frozen=True):
    """How one contender for a task did."""

    engine: str
    """Who proposed its schedules; `static` or `default` for those that nobody searched."""
    implementation: str
    trials: Count
    failed: Count
    seconds: Amount | None
    """Median of one call with its best schedule; null if none of its trials gave a time."""
    stopped: str | None
    """Why it was not asked any more; null if it was until the end."""


Ratio = tuple[Amount, Amount, Amount]
"""A ratio of times, and the ends of the interval that holds it."""


class Replaced(_Kept, frozen=True):
    """The schedule that won the trials of a task, where another one won in the model."""

    engine: Name
    implementation: Name
    schedule: Annotated[str, StringConstraints(max_length=1 << 24), AfterValidator(_check_schedule)]
    """As in a record."""


class FinalTime(_Kept, frozen=True):
    """How a task did inside the whole model."""

    seconds: Amount
    """Median of one call of who won."""
    finalists: Count
    """Schedules that could win."""
    replaced: Replaced | None
    """Who won the trials; null where it won here, too."""
    ratio: Ratio | None
    """Time of the fastest other finalist by that of the trials' winner; null where there was
    none."""


class FinalsReport(_Kept, frozen=True):
    """How the finals inside the whole model went."""

    rounds: Count
    """How often each model ran."""
    sure: Amount
    """Part of all cases in which an interval holds its ratio."""
    tasks: Count
    """Tasks with more than one finalist."""
    decided: Count
    """Those where it is sure who is faster."""
    changed: Count
    """Those that another schedule won than in the trials."""
    kernels: Amount
    """Median of what all kernels take in one run of the model, with all winners."""
    rest: Amount
    """What a run takes besides: calls, and storage."""
    whole: Amount = 0.0
    """Seconds of a run as a package runs it, or where there was no time for that, in the process in
    which kernels were timed. 0 where it was not measured."""
    times: dict[Hash, Amount]
    """Median of one call of each task of the model inside of it, also of those that are not tuned,
    by workload."""
    sizes: dict[Name, Count] = {}
    """Of a model with open sizes, at which of them it ran; left out of others."""
    gain: Ratio | None
    """Time of the model with all winners by that with the schedules of an untuned build; null where
    they are the same. Where such a schedule failed its trial, the trials' winner stands for it."""

    @property
    def run(self) -> float:
        """Seconds of a run: what its kernels take, and what it takes besides."""
        return self.kernels + self.rest


class TunedTask(_Kept, frozen=True):
    """What became of a task."""

    task: Count
    """Its place in the table of tasks."""
    name: TaskName
    workload: Hash
    trials: Count
    failed: Count
    engine: str | None
    """Who won; null if nobody has a time."""
    implementation: str | None
    seconds: Amount | None
    """Median of one call with the best schedule."""
    stopped: str | None
    """Why it was not searched any more; null if it was until the end."""
    rule: int | None
    """Which rule of the policy it fell under; null for none."""
    share: Amount
    """Its part of the model's time before the search."""
    failures: tuple[ListedFailure, ...]
    contenders: tuple[ContenderResult, ...]
    """Who took part, the fastest first."""
    over_next: Amount | None
    """How many times slower the next contender is; null if there is none with a time."""
    over_start: Amount | None
    """The same of the schedules that nobody searched."""
    final: FinalTime | None = None
    """How it did inside the whole model; left out where that did not run."""


class TuningReport(ArtifactDocument, _Kept, frozen=True):
    """How tuning went."""

    FILE: ClassVar[str] = "tuning.json"

    ended: str
    """Why it ended."""
    left_out: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """What there was no time for, an entry a kind of work; left out where that is nothing."""
    seconds: Amount
    """How long it took."""
    session: str
    """Which session measured."""
    shares: dict[str, Amount] | None = None
    """Parts of the time that were searched, measured and steady; left out where a lock knew some of
    the tasks."""
    finals: FinalsReport | None = None
    """How the finals inside the whole model went; left out where there were none."""
    sized_finals: Annotated[tuple[FinalsReport, ...], Field(max_length=100)] = ()
    """The same at each likely size of a model with open sizes, in whose place they are."""
    headroom: tuple[TaskHeadroom, ...] = ()
    """What is left to gain in each task with a time; left out where none has one."""
    device: Annotated[dict[Name, str | int], Field(max_length=100)] | None = None
    """The kind of machine that measured; left out where it was the machine of the run."""
    tasks: tuple[TunedTask, ...]
    """Every task that was tuned, in the order of the model."""

    @property
    def played(self) -> tuple[FinalsReport, ...]:
        """The finals that were played: one, one for each likely size, or none."""
        return (self.finals,) if self.finals else self.sized_finals


class OpenSetting(_Kept, frozen=True):
    """What a kernel with open sizes is built with: what is best over all its likely sizes."""

    engine: Name
    implementation: Name
    schedule: Annotated[str, StringConstraints(max_length=1 << 16), AfterValidator(_check_setting)]
    """A template and its knobs, as JSON."""

    def of(self, record: "BestRecord") -> "BestRecord":
        """Return a record with this in the place of its schedule, and nothing else of it."""
        schedule = {name: getattr(self, name) for name in OpenSetting.model_fields}
        return record.model_copy(update=schedule)


class BestRecord(_Kept, frozen=True):
    """The best schedule of a workload."""

    workload: Hash
    engine: Name
    implementation: Name
    schedule: Annotated[str, StringConstraints(max_length=1 << 24), AfterValidator(_check_schedule)]
    """How it is made again: TVM's trace, or a template and its knobs, as JSON."""
    seconds: Annotated[tuple[Time, ...], Field(min_length=1, max_length=10_000)]
    """Time of one call, a value a repeat."""
    trials: Count
    """What finding it took."""
    clock: Annotated[str, StringConstraints(max_length=80)] | None = None
    """The clock of these times: null for a loop around the kernel alone."""
    device: Annotated[dict[Name, str | int], Field(max_length=100)] | None = None
    """What these times were taken on; left out where it is the machine that tuned."""
    inside: Annotated[tuple[Time, ...], Field(max_length=10_000)] = ()
    """Time of one call inside the whole model, a value a round; left out where that did not run."""
    open_settings: Annotated[dict[Hash, OpenSetting], Field(max_length=1000)] = {}
    """Of kernels with open sizes that this is at likely ones, what is best over all of these, by
    their workloads; left out where it is this record's schedule."""

    @property
    def line(self) -> str:
        """Return its line in `records.jsonl`."""
        return json.dumps(self.document(), sort_keys=True)


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What tuning found, as both files of a RECORDS artifact say it."""

    report: TuningReport
    records: Mapping[str, BestRecord]
    """The best record of each workload that has one, by workload."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a RECORDS artifact. Raises OSError, and MalformedError for what is none."""
        return cls(TuningReport.read(folder), read_records(folder))

    @classmethod
    def untuned(cls) -> Self:
        """Return that of a model of which nothing was tuned."""
        return cls(TuningReport(ended="not tuned", seconds=0.0, session="", tasks=()), {})

    def write(self, folder: Path) -> None:
        """Write the files of a RECORDS artifact."""
        write_records(self.records.values(), folder)
        self.report.write(folder)

    @property
    def tasks(self) -> dict[str, TunedTask]:
        """What became of each task, by workload."""
        return {task.workload: task for task in self.report.tasks}


def read_records(folder: Path) -> dict[str, BestRecord]:
    """Read `records.jsonl` of an artifact, by workload. Raises OSError, and MalformedError."""
    lines = foreign.read(folder / RECORDS, LARGEST).splitlines()
    return {
        record.workload: record for record in (parse_document(BestRecord, line) for line in lines)
    }


def write_records(records: Iterable[BestRecord], folder: Path) -> None:
    """Write `records.jsonl` of an artifact: a line a record, sorted by workload."""
    ordered = sorted(records, key=lambda record: record.workload)
    text = "".join(f"{record.line}\n" for record in ordered)
    (folder / RECORDS).write_text(text, encoding="utf-8")
