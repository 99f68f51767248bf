"""The search loop: gives batches of trials to tasks until the budget is spent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

from autopipe.processes.contained import Failed
from autopipe.schedules.engines.engine import MeasuredSchedule
from autopipe.schedules.policy import Contender
from autopipe.tuning.journal import Proposal
from autopipe.tuning.scheduler import Scheduler
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials
from autopipe.tuning.worth import NotWorth

_FIRST: Final = 8
"""Trials of a batch that a task gets if the budget has them, and of a contender's first."""

_ROUNDS: Final = 3
"""Batches that every task could have, at least, before the batch size grows."""


class Proposer(Protocol):
    """Asks the search of a contender for a task; may raise Failed."""

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
        """Tune, and return why it ended."""
        states = self.trials.states
        aside = sum(state.stopped is not None for state in states)
        for state in states:  # a resumed run may have left little to do
            state.stopped = state.stopped or self.trials.verdict(state)
        while any(state.stopped is None for state in states):
            if self.trials.left() <= 0:
                return "all trials are spent"
            if self.trials.late():
                return "the time is spent"
            state = self.scheduler(states)
            by = state.contest.next()
            if by is None:
                state.stopped = state.contest.ended()
                continue
            self._step(state, by)
            state.history.append(state.best)
            state.stopped = state.stopped or self.trials.verdict(state)
        judged = f"; {aside} of {len(states)} are not worth a search (tasks.judge)"
        return f"no task has anything left to try{judged if aside else ''}"

    def _step(self, state: TaskState, by: Contender) -> None:
        """Have one batch of a contender proposed, measured, written down and learned."""
        entry = state.contest.entries[by]
        most = self.batch if entry.form.batches else min(_FIRST, self.batch)
        start, before = monotonic(), state.best
        try:
            count = min(most, self.trials.allowance(state))
            schedules = self.proposer.propose(state, by, count)
            if not schedules:
                never = schedules is None
                entry.out = "no design space" if never else "all schedules are tried"
                return
            results = self.trials.batch(state, [Proposal(by, schedule) for schedule in schedules])
            known = [MeasuredSchedule(p.schedule, found.median) for p, found in results]
            times = [measured.seconds for measured in known]
            state.contest.count(by, times, before, monotonic() - start)
            self.proposer.learn(state, by, known)
        except NotWorth as error:
            entry.out = str(error)
        except Failed as error:
            entry.out = str(error)
            self.failed(state, by, error)
