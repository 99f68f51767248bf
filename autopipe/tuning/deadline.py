"""The end of the budget of time, which all steps of tuning keep, and what they left out for it."""

import math
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

CHECKS: Final = "checks of winners"
COMPARISONS: Final = "comparisons in the model"
RUN_OFFS: Final = "repeated measurements"
TASKS: Final = "tasks"
"""What is left out for lack of time, as reports call it."""


@dataclass(slots=True)
class Deadline:
    """When tuning ends; a step may use what is not kept for later ones."""

    end: float = math.inf
    """By the monotonic clock; infinite where the time is not limited."""
    kept: float = 0.0
    """Seconds that are kept for later steps."""
    left_out: Counter[str] = field(default_factory=Counter)
    """How many of what kind of work were left out for lack of time."""

    def left(self) -> float:
        """Return the seconds that this step has left."""
        return self.end - self.kept - monotonic()

    def told(self) -> tuple[str, ...]:
        """Return what was left out, an entry a kind of work."""
        return tuple(f"{what} ({count})" for what, count in sorted(self.left_out.items()) if count)
