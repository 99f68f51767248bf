"""Time a few schedules of one task after the other in turn, as far as there is time."""

from collections.abc import Mapping, Sequence
from time import monotonic

from autopipe.measure.measurement import Measurement
from autopipe.measure.turn import TurnTimeout
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.runners.runner import Rounds
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials


class TaskTimer:
    """Times schedules of tasks, and skips those that would take longer than what is left."""

    def __init__(
        self, trials: Trials, runner: Rounds, *, rounds: int, deadline: Deadline, skipped: str
    ) -> None:
        """Set the number of rounds, and the name in reports of tasks that are skipped."""
        self._trials = trials
        self._runner = runner
        self._rounds = rounds
        self._deadline = deadline
        self._skipped = skipped
        self._longest = 0.0
        """Seconds of the task that took longest."""

    def time(
        self, state: TaskState, proposals: Sequence[Proposal]
    ) -> Mapping[Proposal, Measurement]:
        """Return the measurement of each schedule of a task; none if there is no time for it."""
        if not proposals:
            return {}
        start = monotonic()
        results = self._measure(state, proposals) if self._deadline.left() > self._longest else {}
        if not results:
            self._deadline.left_out[self._skipped] += 1
        self._longest = max(self._longest, monotonic() - start)
        return results

    def _measure(
        self, state: TaskState, proposals: Sequence[Proposal]
    ) -> Mapping[Proposal, Measurement]:
        candidates = [self._trials.candidate(state, proposal) for proposal in proposals]
        try:
            measurements = self._runner.rounds(candidates, self._rounds)
        except TurnTimeout:
            return {}
        return dict(zip(proposals, measurements, strict=True))
