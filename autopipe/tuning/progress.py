"""Tells the reporter how tuning goes, not more often than people can read."""

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from autopipe.pipeline.events import Emit, TuningProgress
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.task_state import TaskState

_PAUSE: Final = 0.5
"""Seconds between two events."""


class ProgressReporter:
    """Counts trials as they are measured."""

    def __init__(
        self,
        states: Sequence[TaskState],
        budget: int,
        emit: Emit,
        workers: Callable[[], int | None] = lambda: None,
        deadline: Deadline | None = None,
    ) -> None:
        """Initialize the counters; `budget` is the trials of all tasks together.

        `workers` is the number of machines of a farm, `deadline` limits the seconds.
        """
        self._deadline = deadline or Deadline()
        self._workers = workers
        self._states = states
        self._budget = budget
        self._started = monotonic()
        self._emit = emit
        self._before = sum(state.trials for state in states)
        self._last = -math.inf

    def emit_at_intervals(self) -> None:
        """Emit an event unless the last one was just now."""
        if monotonic() - self._last >= _PAUSE:
            self.emit()

    def emit(self) -> None:
        """Emit an event."""
        self._last = monotonic()
        trials = sum(state.trials for state in self._states)
        seconds = monotonic() - self._started
        rate = (trials - self._before) / seconds if seconds > 0 else 0.0
        self._emit(
            TuningProgress(
                trials=trials,
                failed=sum(state.failed for state in self._states),
                budget=self._budget,
                latency=compute_latency(self._states),
                rate=rate,
                remaining=self._estimate_remaining(self._budget - trials, rate),
                workers=self._workers(),
            )
        )

    def _estimate_remaining(self, trials: int, rate: float) -> float | None:
        """Return the seconds until the trials or the time are spent; null if that is unknown.

        They include those that are kept for later steps: the time left is that of the stage.
        """
        search_seconds = min(trials / rate if rate else math.inf, self._deadline.left())
        seconds = search_seconds + self._deadline.kept
        return max(0.0, seconds) if seconds < math.inf else None


def compute_latency(states: Sequence[TaskState]) -> float | None:
    """Return the seconds of all tasks in one inference; None until each has a schedule."""
    total = sum(state.task.calls * state.best for state in states)
    return total if total < math.inf else None
