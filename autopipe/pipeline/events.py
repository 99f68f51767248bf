"""Events of a run, as values. Stages and the executor emit them; reporters show them."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)

from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.artifacts.pass_time import PassTime


class _Event(BaseModel, frozen=True, extra="forbid", defer_build=True):
    build: str | None = None
    """Name of the build, in a run of several; left out where there is one."""

    @model_serializer(mode="wrap")
    def _without_build(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        document: dict[str, object] = dump(self)
        if self.build is None:
            del document["build"]
        return document


class BuildStarted(_Event, frozen=True):
    """One of several builds begins."""

    event: Literal["build_started"] = "build_started"
    file: str
    """Path of the pipeline file."""
    target: str
    """The target, as the file states it."""
    number: int
    """Which of the builds it is, from 1."""
    total: int


class StageStarted(_Event, frozen=True):
    """A stage begins to run."""

    event: Literal["stage_started"] = "stage_started"
    stage: str


class StageCached(_Event, frozen=True):
    """A stage was found in the store and is not run."""

    event: Literal["stage_cached"] = "stage_cached"
    stage: str
    digest: str
    fetched: bool = False
    """Whether it came from the remote just now."""


class StageSkipped(_Event, frozen=True):
    """A measuring stage has run with these inputs before; its old result is not shown."""

    event: Literal["stage_skipped"] = "stage_skipped"
    stage: str
    reason: str


class StageResumed(_Event, frozen=True):
    """A stage goes on where an earlier attempt was interrupted."""

    event: Literal["stage_resumed"] = "stage_resumed"
    stage: str
    after: str
    """The budget spent by then, such as `12 of 64 trials, 41 s spent`."""


class StageFinished(_Event, frozen=True):
    """A stage ran to its end."""

    event: Literal["stage_finished"] = "stage_finished"
    stage: str
    digest: str
    seconds: float
    summary: str = ""
    """One line for people, such as `31 tasks, 12 kept`."""


class StageFailed(_Event, frozen=True):
    """A stage ended in an error; the run ends with it."""

    event: Literal["stage_failed"] = "stage_failed"
    stage: str
    error: str
    exit_code: int


class Progress(_Event, frozen=True):
    """How far the running stage has come."""

    event: Literal["progress"] = "progress"
    stage: str
    message: str
    """The current step, or the items that are counted, such as `tasks planned`."""
    done: int | None = None
    """Number of items done; null where nothing is counted."""
    total: int | None = None
    """Number of items."""
    remaining: float | None = None
    """Estimated seconds until all items are done."""


class TuningProgress(_Event, frozen=True):
    """How far tuning has come."""

    event: Literal["tuning_progress"] = "tuning_progress"
    stage: str = "tune"
    trials: int
    """Trials measured, those of interrupted runs included."""
    failed: int
    """Of these, trials that did not build, crashed or timed out."""
    budget: int
    """Trials the budget allows."""
    latency: float | None
    """Estimated seconds of all tuned tasks with their best schedules; null until each has one."""
    rate: float
    """Trials per second in this process."""
    remaining: float | None
    """Estimated seconds until the budget is spent."""
    workers: int | None = None
    """Machines of a farm that measure; null where this one does."""


class Logged(_Event, frozen=True):
    """A line of the log of a verbose run."""

    event: Literal["logged"] = "logged"
    stage: str
    level: str
    """Such as `info` or `debug`."""
    source: str
    """The module of autopipe that logged it."""
    message: str


class PassTimes(_Event, frozen=True):
    """How long each pass of a stage took, in the order of their first run."""

    event: Literal["pass_times"] = "pass_times"
    stage: str
    passes: tuple[PassTime, ...]


class TuningHeadroom(_Event, frozen=True):
    """The remaining headroom of each task after tuning."""

    event: Literal["tuning_headroom"] = "tuning_headroom"
    stage: str
    tasks: tuple[TaskHeadroom, ...]


class Measured(_Event, frozen=True):
    """A result of a stage that the store does not keep.

    These are times, which are never cached, and errors of a build that fails *verify*.
    """

    event: Literal["measured"] = "measured"
    stage: str
    document: dict[str, JsonValue]
    """The document that the stage writes, whether or not a gate then ends the run."""


class Tuned(_Event, frozen=True):
    """The share of the build's time that was tuned in this store; emitted in every run."""

    event: Literal["tuned"] = "tuned"
    stage: str
    searched: float
    """Share of the kept tasks' time in tasks where an engine searched."""
    measured: float
    """Share in tasks whose schedule was measured here."""
    steady: float
    """Share in tasks whose measurements agree with each other."""
    claimed: int
    """Tasks built with a time from a lock or a remote that was not measured here."""


class Warn(_Event, frozen=True):
    """Something the user should know that does not end the run."""

    event: Literal["warning"] = "warning"
    stage: str
    message: str


class RunFinished(_Event, frozen=True):
    """The run is over."""

    event: Literal["run_finished"] = "run_finished"
    exit_code: int
    seconds: float
    error: str | None = None
    """The error of a failed run: the message of the command, without a traceback."""
    package: str | None = None
    """Path of the packaged file, if one was made."""
    lock: str | None = None
    """Path of the lock, if it was written."""
    unlocked: str | None = None
    """Why no lock was written, where a run of the pipeline file as it is would have one."""


class BuildResult(BaseModel, frozen=True, extra="forbid", defer_build=True):
    """The outcome of one of several builds."""

    build: str
    file: str
    target: str
    result: Literal["done", "failed", "interrupted", "not_run"]
    exit_code: int | None = None
    """Null for a build that was not run."""
    seconds: float | None = None
    error: str | None = None
    """The error of a failed build."""
    package: str | None = None
    """Path of the packaged file, if one was made."""
    lock: str | None = None
    """Path of the lock, if it was written."""
    competitor: str | None = None
    """The reference runtime of the gate, if this run timed one."""
    ratio: float | None = None
    """The build's time divided by that of this runtime."""


class BuildsFinished(_Event, frozen=True):
    """A run of several builds is over."""

    event: Literal["builds_finished"] = "builds_finished"
    exit_code: int
    """The largest of the builds' exit codes."""
    seconds: float
    builds: tuple[BuildResult, ...]


Event = (
    StageStarted | StageCached | StageSkipped | StageResumed | StageFinished | StageFailed
    | Progress | TuningProgress | PassTimes | Logged | Measured | Tuned | Warn | RunFinished
    | TuningHeadroom | BuildStarted | BuildsFinished
)  # fmt: skip

Emit = Callable[[Event], None]
"""Sends an event to a reporter, possibly from another process."""

parse: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="event")], config=ConfigDict(defer_build=True)
)
"""Reads an event from JSON."""
