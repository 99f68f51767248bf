"""Trials that were timed and wait to be timed again: a build takes longer than all its timings.

What is kept is the built candidate, never a time.
"""

from typing import Final

from autopipe.measure.measurement import Candidate, Measurement, Repeatable
from autopipe.measure.trial import Trial

_OF_A_TASK: Final = 3
"""The fastest of a task that are kept."""

_MOST: Final = 16
"""Trials that are kept; the child of each holds some 20 MiB of its own, and may hold several."""


class Kept:
    """The trials of the fastest candidates of each task; their children wait."""

    def __init__(self, most: int = _MOST) -> None:
        """Keep nothing yet, and never more than so many."""
        self._most = most
        self._trials: dict[Repeatable, tuple[float, Trial]] = {}

    def offer(self, candidate: Candidate, trial: Trial, found: Measurement) -> None:
        """Keep a trial that was timed, or end it; so may one that was kept before."""
        if not isinstance(candidate, Repeatable) or found.error is not None or found.cut:
            trial.close()
            return
        self._drop_candidate(candidate)
        self._trials[candidate] = found.median, trial
        rivals = [other for other in self._trials if other.task == candidate.task]
        if len(rivals) > _OF_A_TASK:
            self._drop_candidate(max(rivals, key=lambda other: self._trials[other][0]))
        if len(self._trials) > self._most:  # those that came first are asked for first
            self._drop_candidate(candidate)

    def take(self, candidate: Candidate) -> Trial | None:
        """Hand out the trial of a candidate, if there is one whose child still waits."""
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
