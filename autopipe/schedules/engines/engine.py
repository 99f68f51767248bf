"""What an engine is: where the schedules of a task come from, one batch at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from autopipe.tasks.task import Task

if TYPE_CHECKING:
    import tvm

    from autopipe.schedules.conditions import Conditions


@dataclass(frozen=True, slots=True)
class Known:
    """A schedule that was measured before."""

    schedule: str
    """As `replay` reads it."""
    seconds: float = math.inf
    """Time of one call; infinite if the trial failed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What an engine is asked to schedule."""

    task: Task
    module: "tvm.IRModule"
    """The implementation to schedule, as `main`."""
    conditions: "Conditions"
    known: Sequence[Known]
    """Schedules of this implementation that were measured before."""
    batch: int
    """Schedules that will be asked for at a time, at most."""
    seed: int
    tuner: str = "model"
    """Which order a search of knobs takes: `tuning.tuner` of the pipeline file."""


class Search(Protocol):
    """The search of one engine for one task.

    One that has an attribute `size`, the number of schedules it chooses from, is not begun where
    that is too small to be worth it.
    """

    def propose(self, count: int) -> list[str]:
        """Return schedules worth measuring, none of them known, `count` at most.

        None at all means that there are no more.
        """

    def learn(self, measured: Sequence[Known]) -> None:
        """Take the results of the last proposal."""


class Engine(Protocol):
    """Proposes schedules for tasks; keeps what tasks can learn from each other."""

    name: str

    def search(self, problem: Problem) -> Search | None:
        """Begin the search for a task, or return None if the engine has no schedules for it."""
