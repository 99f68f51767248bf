"""What happens during a run, as values. Stages and the executor emit them; reporters show them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter


class _Event(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    pass


class StageStarted(_Event, frozen=True):
    """A stage begins to run."""

    event: Literal["stage_started"] = "stage_started"
    stage: str


class StageCached(_Event, frozen=True):
    """A stage was found in the store and is not run."""

    event: Literal["stage_cached"] = "stage_cached"
    stage: str
    digest: str


class StageSkipped(_Event, frozen=True):
    """A stage that measures has done so for these very inputs; its old result is not shown."""

    event: Literal["stage_skipped"] = "stage_skipped"
    stage: str
    reason: str


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
    package: str | None = None
    """Path of the packaged file, if one was made."""


Event = (
    StageStarted | StageCached | StageSkipped | StageFinished | StageFailed
    | Progress | TuningProgress | Warn | RunFinished
)  # fmt: skip

parse: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])
"""Reads an event from JSON."""
