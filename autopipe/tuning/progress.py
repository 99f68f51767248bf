"""Tells the reporter how tuning goes, not more often than people can read."""

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from autopipe.pipeline.events import Event, TuningProgress
from autopipe.tuning.scheduler import Standing

_PAUSE: Final = 0.5
"""Seconds between two events."""


class Progress:
    """Counts trials as they are measured."""

    def __init__(
        self, standings: Sequence[Standing], budget: int, emit: Callable[[Event], None]
    ) -> None:
        """Take what is counted; `budget` is the trials of all tasks together."""
        self._standings = standings
        self._budget = budget
        self._started = monotonic()
        self._emit = emit
        self._before = sum(standing.trials for standing in standings)
        self._last = -math.inf

    def told(self) -> None:
        """Emit an event unless the last one was just now."""
        if monotonic() - self._last >= _PAUSE:
            self.emit()

    def emit(self) -> None:
        """Emit an event."""
        self._last = monotonic()
        trials = sum(standing.trials for standing in self._standings)
        seconds = monotonic() - self._started
        rate = (trials - self._before) / seconds if seconds > 0 else 0.0
        self._emit(
            TuningProgress(
                trials=trials,
                failed=sum(standing.failed for standing in self._standings),
                budget=self._budget,
                latency=latency(self._standings),
                rate=rate,
                remaining=(self._budget - trials) / rate if rate else None,
            )
        )


def latency(standings: Sequence[Standing]) -> float | None:
    """Return the seconds of all tasks in one inference; None until each has a schedule."""
    total = sum(standing.task.calls * standing.best for standing in standings)
    return total if total < math.inf else None
