"""The deadline of tuning, shared by all its steps, and the work they skipped for it."""

import math
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from autopipe.config.tuning import Budget

CHECKS: Final = "checks of winners"
COMPARISONS: Final = "comparisons in the model"
EXTRAS: Final = "plain loops"
REPEATS: Final = "repeated measurements"
TASKS: Final = "tasks"
"""Names in reports of work that is skipped for lack of time."""

_IN_MODEL: Final = 1 / 4
"""Part of a budget of time that the comparison inside the model may take."""

_LONGEST: Final = 60.0
"""Seconds that it may take where no budget of time is given."""

_SETTLING: Final = 0.3
"""Time of the steps between the search and the comparison inside the model over that of the first
round: plain loops of few tasks are timed once, and winners are checked."""

_REPEATING: Final = 2.0
"""The same where nothing is timed inside the model: three schedules are timed per task."""

_MOST_SETTLING: Final = 0.4
"""Maximum part of a time budget that is reserved for the steps after the search."""

_CLOSING: Final = 1 / 20
"""Part of a time budget in which no work is begun: running work is ended, and results written."""

_START: Final = 1 / 4
"""Part of a time budget that is reserved until the first round has shown what a round takes."""


@dataclass(slots=True)
class Deadline:
    """When tuning ends; a step may use the time not reserved for later ones."""

    end: float = math.inf
    """By the monotonic clock; infinite where the time is not limited."""
    kept: float = 0.0
    """Seconds reserved for later steps."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of skipped items by kind of work."""
    in_model: float = 0.0
    """Seconds that the comparison inside the model may take; 0 where there is none."""
    settling: float = 0.0
    """Seconds reserved for the steps after the search."""

    @classmethod
    def of(cls, budget: Budget, elapsed_seconds: float, *, in_model: bool) -> "Deadline":
        """Build the deadline of a budget of which `elapsed_seconds` are spent."""
        time = budget.time
        deadline = cls()
        if in_model:
            deadline.in_model = _LONGEST if time is None else _IN_MODEL * time
        if time is not None:
            deadline.end = monotonic() + (1 - _CLOSING) * time - elapsed_seconds
            deadline._reserve_settling(_START * time)
        return deadline

    def keep_back(self, budget: Budget, first_round: float) -> None:
        """Reserve time for the steps after the search, after a first round of these seconds."""
        if budget.time is not None:
            factor = _SETTLING if self.in_model else _REPEATING
            self._reserve_settling(min(factor * first_round, _MOST_SETTLING * budget.time))

    def limit_search(self, budget: Budget) -> Budget:
        """Return the budget of the search, without the time reserved for later steps."""
        if budget.time is None:
            return budget
        reserved_seconds = self.in_model + self.settling + _CLOSING * budget.time
        return budget.model_copy(update={"time": budget.time - reserved_seconds})

    def left(self) -> float:
        """Return the seconds that this step has left."""
        return self.end - self.kept - monotonic()

    def list_skipped(self) -> tuple[str, ...]:
        """List the skipped work, one entry per kind."""
        return tuple(f"{what} ({count})" for what, count in sorted(self.left_out.items()) if count)

    def _reserve_settling(self, settling: float) -> None:
        self.settling = settling
        self.kept = self.in_model + settling
