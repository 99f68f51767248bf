"""The interface of an engine: a source of schedules for a task, one batch at a time.

search = engine.search(problem)             # None: the engine has no schedules for this task
while schedules := search.propose(64):
    search.learn(measure(schedules))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from autopipe.tasks.task import Task

if TYPE_CHECKING:
    import tvm

    from autopipe.schedules.conditions import Conditions


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule that was made without measurement, and the record that reproduces it."""

    implementation: str
    """Name of the implementation that was scheduled."""
    schedule: str
    """The record: a trace, or a template with its knobs, as `replay` reads it."""
    module: "tvm.IRModule"
    """The module with `main` scheduled."""


@dataclass(frozen=True, slots=True)
class MeasuredSchedule:
    """A schedule that was measured before."""

    schedule: str
    """The record of the schedule, as `replay` reads it."""
    seconds: float = math.inf
    """Time of one call; infinite if the trial failed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of a search: a function of a task, and the limits of the search."""

    task: Task
    module: "tvm.IRModule"
    """The implementation to schedule, as `main`."""
    conditions: "Conditions"
    known: Sequence[MeasuredSchedule]
    """All schedules of this implementation that were measured before, in earlier runs, too. Some
    come from other engines or from earlier versions of templates: skip what does not apply."""
    batch: int
    """Maximum schedules in a proposal."""
    seed: int
    """Seed of all random choices of the search."""
    tuner: str = "model"
    """The tuner that orders the settings of knobs: `tuning.tuner` of the pipeline file."""
    threads: int | None = None
    """Threads that the search may use; null for as many as the target has cores."""


class Search(Protocol):
    """The search of one engine for one task.

    A search may have an attribute `size`, the number of schedules it chooses from, and is not used
    if that number is too small. It may also have a method `observe` for schedules of this
    task that other runs have measured meanwhile, so that it proposes none of these.
    """

    def propose(self, count: int) -> list[str]:
        """Return new schedules to measure, `count` at most; [] if there are no more."""

    def learn(self, measurements: Sequence[MeasuredSchedule]) -> None:
        """Learn from the times of the schedules that were proposed last."""


class Engine(Protocol):
    """Proposes schedules for tasks; its searches may share a cost model."""

    name: str
    """Name in YAML, records and reports."""

    def search(self, problem: Problem) -> Search | None:
        """Begin the search for a task, or return None if the engine has no schedules for it."""
