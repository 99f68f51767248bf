"""Keep timed trials for repeated measurements: a build takes longer than all its timings.

The built candidate is kept, never a time.
"""

from typing import Final

from autopipe.measure.measurement import Candidate, Measurement, Repeatable
from autopipe.measure.trial import Trial

_OF_A_TASK: Final = 3
"""Number of kept trials of a task, the fastest ones."""

_MAX_KEPT_TRIALS: Final = 16
"""Number of kept trials; the child of each holds some 20 MiB, and may hold several trials."""


class Kept:
    """The trials of the fastest candidates of each task; their children wait."""

    def __init__(self, most: int = _MAX_KEPT_TRIALS) -> None:
        """Create an empty store of at most `most` trials."""
        self._most = most
        self._trials: dict[Repeatable, tuple[float, Trial]] = {}

    def offer(self, candidate: Candidate, trial: Trial, measurement: Measurement) -> None:
        """Keep a timed trial or end it; an earlier kept trial may be ended instead."""
        if (
            not isinstance(candidate, Repeatable)
            or measurement.error is not None
            or measurement.cut
        ):
            trial.close()
            return
        self._drop_candidate(candidate)
        self._trials[candidate] = measurement.median, trial
        same_task_trials = [other for other in self._trials if other.task == candidate.task]
        if len(same_task_trials) > _OF_A_TASK:
            self._drop_candidate(max(same_task_trials, key=lambda other: self._trials[other][0]))
        if len(self._trials) > self._most:  # the oldest are requested first
            self._drop_candidate(candidate)

    def take(self, candidate: Candidate) -> Trial | None:
        """Remove and return the trial of a candidate, if its child still waits."""
        if not isinstance(candidate, Repeatable) or candidate not in self._trials:
            return None
        _, trial = self._trials.pop(candidate)
        if trial.waits:
            return trial
        trial.close()
        return None

    def close(self) -> None:
        """End all children."""
        for candidate in list(self._trials):
            self._drop_candidate(candidate)

    def __contains__(self, trial: Trial) -> bool:
        return any(trial is kept for _, kept in self._trials.values())

    def _drop_candidate(self, candidate: Repeatable) -> None:
        if candidate in self._trials:
            self._trials.pop(candidate)[1].close()
