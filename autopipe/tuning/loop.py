"""Tuning: spends a budget of trials on the tasks of a model."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

from autopipe.measure.local import Measurer
from autopipe.measure.measurement import Measurement
from autopipe.processes.contained import Failed
from autopipe.schedules.engines.engine import Known
from autopipe.tuning.contest import Entry
from autopipe.tuning.journal import Journal
from autopipe.tuning.scheduler import Scheduler
from autopipe.tuning.task_state import Spending, Work
from autopipe.tuning.worth import NotWorth

_FIRST: Final = 8
"""Trials of a batch that a task gets if the budget has them, and of a contender's first."""

_ROUNDS: Final = 3
"""Batches that every task could have, at least, before the batch size grows."""


class Proposer(Protocol):
    """Asks the search behind an arm; may raise Failed."""

    def propose(self, arm: int, count: int) -> list[str] | None:
        """Return schedules to measure, [] if there are no more, None if there never were."""

    def learn(self, arm: int, measured: Sequence[Known]) -> None:
        """Take the results of the last proposal."""


def batch_size(trials: int, tasks: int, most: int) -> int:
    """Return how many candidates a task has measured at a time: few where the budget is small."""
    share = trials // max(1, tasks)
    return max(1, min(most, max(share // _ROUNDS, min(_FIRST, share))))


@dataclass(frozen=True, slots=True)
class Tuner:
    """Gives batches of trials to tasks until the budget is spent."""

    works: Sequence[Work]
    scheduler: Scheduler
    spending: Spending
    batch: int
    """Trials of a task at a time."""
    proposer: Proposer
    measurer: Measurer
    journal: Journal
    told: Callable[[], None]
    """Called after each trial."""
    failed: Callable[[int, Failed], None]
    """Called with an arm whose search failed; may raise StageError to end it all."""

    def run(self) -> str:
        """Tune, and return why it ended."""
        standings = [work.standing for work in self.works]
        works = {work.standing.task.index: work for work in self.works}
        aside = sum(standing.stopped is not None for standing in standings)
        for standing in standings:  # a resumed run may have left little to do
            standing.stopped = standing.stopped or self.spending.verdict(standing)
        while any(standing.stopped is None for standing in standings):
            if self.spending.left() <= 0:
                return "all trials are spent"
            if self.spending.late():
                return "the time is spent"
            standing = self.scheduler(standings)
            work = works[standing.task.index]
            arm = work.contest.next()
            if arm is None:
                standing.stopped = work.contest.ended()
                continue
            self._step(work, arm)
            standing.history.append(standing.best)
            standing.stopped = standing.stopped or self.spending.verdict(standing)
        judged = f"; {aside} of {len(standings)} are not worth a search (tasks.judge)"
        return f"no task has anything left to try{judged if aside else ''}"

    def _step(self, work: Work, arm: int) -> None:
        """Have one batch of a contender proposed, measured, written down and learned."""
        entry = work.contest.entries[arm]
        most = self.batch if entry.form.batches else min(_FIRST, self.batch)
        start, before = monotonic(), work.standing.best
        try:
            schedules = self.proposer.propose(
                arm, min(most, self.spending.allowance(work.standing))
            )
            if not schedules:
                never = schedules is None
                entry.out = "no design space" if never else "all schedules are tried"
                return
            results = self._measure(work, entry, schedules)
            times = [result.median for result in results.values()]
            work.contest.count(arm, times, before, monotonic() - start)
            self.proposer.learn(arm, [Known(s, r.median) for s, r in results.items()])
        except NotWorth as error:
            entry.out = str(error)
        except Failed as error:
            entry.out = str(error)
            self.failed(arm, error)

    def _measure(
        self, work: Work, entry: Entry, schedules: Sequence[str]
    ) -> dict[str, Measurement]:
        results: dict[str, Measurement] = {}
        candidates = [work.candidate(entry.by.implementation, each) for each in schedules]
        with closing(self.measurer.measure(candidates, work.standing.best)) as measurements:
            for schedule, measurement in zip(schedules, measurements, strict=False):
                results[schedule] = measurement
                self.journal.write(work, entry.by, {schedule: measurement})
                work.standing.count(measurement.median)
                work.contest.note(entry.by.implementation, measurement.median)
                self.told()
                if self.spending.late():
                    break
        return results
