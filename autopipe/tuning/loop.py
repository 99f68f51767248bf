"""The search loop: gives batches of trials to tasks until the budget is spent."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

from autopipe.processes.contained import Failed
from autopipe.schedules.engines.engine import MeasuredSchedule
from autopipe.schedules.policy import Contender
from autopipe.tuning.journal import Proposal
from autopipe.tuning.scheduler import Scheduler
from autopipe.tuning.searcher import OutOfTime
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import LATE, Trials, Underway
from autopipe.tuning.worth import NotWorth

_FIRST: Final = 8
"""Trials of a batch that a task gets if the budget has them, and of a contender's first."""

_ROUNDS: Final = 3
"""Batches that every task could have, at least, before the batch size grows."""


_AHEAD: Final = 2
"""Trials that are handed out for each that is measured at a time."""


class Proposer(Protocol):
    """Asks the search of a contender for a task; may raise Failed, and OutOfTime."""

    def propose(self, state: TaskState, by: Contender, count: int) -> list[str] | None:
        """Return schedules to measure, [] if there are no more, None if there never were."""

    def learn(self, state: TaskState, by: Contender, measured: Sequence[MeasuredSchedule]) -> None:
        """Take the results of the last proposal."""


def batch_size(trials: int, tasks: int, most: int) -> int:
    """Return how many candidates a task has measured at a time: few where the budget is small."""
    share = trials // max(1, tasks)
    return max(1, min(most, max(share // _ROUNDS, min(_FIRST, share))))


@dataclass(frozen=True, slots=True)
class TuningLoop:
    """Gives batches of trials to tasks until the budget is spent."""

    trials: Trials
    scheduler: Scheduler
    batch: int
    """Trials of a task at a time."""
    proposer: Proposer
    failed: Callable[[TaskState, Contender, Failed], None]
    """Called with a search that failed; may raise StageError to end it all."""

    def run(self) -> str:
        """Tune, and return why it ended.

        Where several candidates are measured at a time, the next task proposes meanwhile.
        """
        states = self.trials.states
        aside = sum(state.stopped is not None for state in states)
        for state in states:  # a resumed run may have left little to do
            state.stopped = state.stopped or self.trials.verdict(state)
        steps: deque[_Step] = deque()
        while steps or any(state.stopped is None for state in states):
            flying = {id(step.state) for step in steps}
            idle = [state for state in states if id(state) not in flying]
            able = any(state.stopped is None for state in idle) and not self._full(steps)
            over = self._over(steps)
            if steps and (over or not able):
                self._finish(steps.popleft())
            elif over:
                return over
            else:
                self._begin(self.scheduler(idle), steps)
        judged = f"; {aside} of {len(states)} are not worth a search (tasks.judge)"
        return f"no task has anything left to try{judged if aside else ''}"

    def _over(self, steps: Iterable["_Step"]) -> str | None:
        """Return why nothing more is begun, if so."""
        if self.trials.left() <= sum(step.count for step in steps):
            return "all trials are spent"
        return LATE if self.trials.late() else None

    def _full(self, steps: Collection["_Step"]) -> bool:
        """Tell whether enough is measured at a time, as one batch is on this machine."""
        width = self.trials.width
        count = sum(step.count for step in steps)
        return bool(steps) and (width == 1 or count >= _AHEAD * width)

    def _begin(self, state: TaskState, steps: "deque[_Step]") -> None:
        """Have one batch of a task proposed, and begin to measure it."""
        by = state.contest.next()
        if by is None:
            state.stopped = state.contest.ended()
            return
        entry = state.contest.entries[by]
        most = self.batch if entry.form.batches else min(_FIRST, self.batch)
        left = self.trials.left() - sum(step.count for step in steps)
        start, before = monotonic(), state.best
        try:
            count = min(most, self.trials.allowance(state), left)
            schedules = self.proposer.propose(state, by, count)
        except OutOfTime:
            return  # which ends the loop
        except (NotWorth, Failed) as error:
            self._leave(state, by, error)
            return
        if schedules:
            proposals = [Proposal(by, schedule) for schedule in schedules]
            underway = self.trials.begin(state, proposals)
            steps.append(_Step(state, by, underway, before, start))
            return
        entry.out = "no design space" if schedules is None else "all schedules are tried"
        self._ended(state)

    def _finish(self, step: "_Step") -> None:
        """Have a batch written down and learned."""
        state, by = step.state, step.by
        results = self.trials.finish(step.underway)
        try:
            known = [MeasuredSchedule(p.schedule, found.median) for p, found in results]
            times = [measured.seconds for measured in known]
            state.contest.count(by, times, step.before, monotonic() - step.start)
            self.proposer.learn(state, by, known)
        except OutOfTime:
            return  # which ends the loop
        except (NotWorth, Failed) as error:
            self._leave(state, by, error)
            return
        self._ended(state)

    def _leave(self, state: TaskState, by: Contender, error: NotWorth | Failed) -> None:
        """Leave a contender out."""
        state.contest.entries[by].out = str(error)
        if isinstance(error, Failed):
            self.failed(state, by, error)
        self._ended(state)

    def _ended(self, state: TaskState) -> None:
        """Note how far a task has come with a batch."""
        state.history.append(state.best)
        state.stopped = state.stopped or self.trials.verdict(state)


@dataclass(frozen=True, slots=True)
class _Step:
    """A batch of a contender that is being measured."""

    state: TaskState
    by: Contender
    underway: Underway
    before: float
    """The best time of the task until then."""
    start: float
    """When it was begun, by the monotonic clock."""

    @property
    def count(self) -> int:
        """How many trials it is."""
        return len(self.underway.proposals)
