"""Tuning: spends a budget of trials on the tasks of a model."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from autopipe.config.tuning import Budget
from autopipe.measure.local import Measurer
from autopipe.measure.measurement import Candidate, Measurement
from autopipe.records.record import Platform, Record
from autopipe.records.session import Session
from autopipe.records.store import Row, Store
from autopipe.schedules.engine import Known
from autopipe.schedules.fallback import Fallback
from autopipe.schedules.scheduler import Scheduler, Standing
from autopipe.schedules.searcher import SearchError

_FIRST: Final = 8
"""Trials of a batch that a task gets if the budget has them."""

_ROUNDS: Final = 3
"""Batches that every task could have, at least, before the batch size grows."""

_HOPELESS: Final = 2
"""Batches without a single time after which a task is left."""


class Contender(NamedTuple):
    """Who may schedule a task: an engine, on an implementation."""

    engine: str
    implementation: str


class Proposer(Protocol):
    """Asks the search behind an arm; may raise SearchError."""

    def propose(self, arm: int, count: int) -> list[str] | None:
        """Return schedules to measure, [] if there are no more, None if there never were."""

    def learn(self, arm: int, measured: Sequence[Known]) -> None:
        """Take the results of the last proposal."""


@dataclass(frozen=True, slots=True)
class Work:
    """One task with what is needed to measure it."""

    standing: Standing
    text: str
    """The unscheduled module as JSON, as it is kept in the store."""
    candidate: Callable[[str, str], Candidate]
    """Makes what can be measured from an implementation and a schedule of it."""
    starts: Sequence[Fallback]
    """Schedules that cost nothing, timed before anything is searched."""
    arms: dict[int, Contender]
    """Whose proposals each arm that may still propose makes, by its index."""


@dataclass(frozen=True, slots=True)
class Journal:
    """Where trials are written down."""

    store: Store
    platform: Platform
    session: Session

    def known(self, work: Work, contender: Contender) -> list[Known]:
        """Return what was ever measured of a contender's schedules on this platform."""
        workload = work.standing.task.workload
        rows = self.store.rows(workload, work.text, self.platform)
        own = [row.record for row in rows if _by(row.record) == contender]
        return [Known(record.schedule, record.median) for record in own]

    def best(self, work: Work) -> Row | None:
        """Return the fastest record of a workload on this platform."""
        return self.store.best(work.standing.task.workload, work.text, self.platform)

    def write(self, work: Work, by: Contender, results: Mapping[str, Measurement]) -> None:
        """Put measured schedules on the disk, with the time they took from the budget."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.store.add(
            self.platform,
            work.text,
            [
                Record(
                    workload=work.standing.task.workload, engine=by.engine,
                    implementation=by.implementation, schedule=schedule,
                    seconds=result.seconds, error=result.error, cut=result.cut,
                    measured=now, session=self.session.name,
                )
                for schedule, result in results.items()
            ],
        )  # fmt: skip
        self.session.save()


def batch_size(trials: int, tasks: int, most: int) -> int:
    """Return how many candidates a task has measured at a time: few where the budget is small."""
    share = trials // max(1, tasks)
    return max(1, min(most, max(share // _ROUNDS, min(_FIRST, share))))


@dataclass(frozen=True, slots=True)
class Tuner:
    """Gives batches of trials to tasks until the budget is spent."""

    works: Sequence[Work]
    scheduler: Scheduler
    budget: Budget
    batch: int
    """Trials of a task at a time."""
    proposer: Proposer
    measurer: Measurer
    journal: Journal
    told: Callable[[], None]
    """Called after each trial."""

    def run(self) -> str:
        """Tune, and return why it ended."""
        standings = [work.standing for work in self.works]
        works = {work.standing.task.index: work for work in self.works}
        for standing in standings:  # a resumed run may have left little to do
            standing.stopped = standing.stopped or self._verdict(standing)
        self._measure_fallbacks()
        while any(standing.stopped is None for standing in standings):
            left = self._left()
            if left <= 0:
                return "all trials are spent"
            if self._late():
                return "the time is spent"
            standing = self.scheduler(standings)
            self._step(works[standing.task.index], left)
            standing.history.append(standing.best)
            standing.stopped = standing.stopped or self._verdict(standing)
        return "no task has anything left to try"

    def _left(self) -> int:
        return self.budget.trials - sum(work.standing.trials for work in self.works)

    def _measure_fallbacks(self) -> None:
        """Time what each task would be built with anyway: a record can then only be faster."""
        fresh = [work for work in self.works if work.standing.best == math.inf]
        fresh.sort(key=lambda work: -work.standing.task.calls * work.standing.task.flops)
        for work in fresh[: max(0, self._left())]:
            for start in work.starts:
                if start.planned is not None and self._left() > 0 and not self._late():
                    by = Contender(start.engine, start.planned.implementation)
                    self.journal.write(work, by, self._measure(work, by, [start.planned.schedule]))

    def _late(self) -> bool:
        return self.journal.session.elapsed >= (self.budget.time or math.inf)

    def _step(self, work: Work, left: int) -> None:
        """Have one batch of a task proposed, measured, written down and learned."""
        standing = work.standing
        allowed = (self.budget.trials_per_task or math.inf) - standing.trials
        arm, by = list(work.arms.items())[len(standing.history) % len(work.arms)]
        try:
            schedules = self.proposer.propose(arm, int(min(self.batch, left, allowed)))
            if not schedules:
                _drop(
                    work, arm, "no design space" if schedules is None else "all schedules are tried"
                )
                return
            results = self._measure(work, by, schedules)
            self.journal.write(work, by, results)
            self.proposer.learn(arm, [Known(s, result.median) for s, result in results.items()])
        except SearchError as error:
            _drop(work, arm, str(error))

    def _measure(
        self, work: Work, by: Contender, schedules: Sequence[str]
    ) -> dict[str, Measurement]:
        results: dict[str, Measurement] = {}
        candidates = [work.candidate(by.implementation, schedule) for schedule in schedules]
        with closing(self.measurer.measure(candidates, work.standing.best)) as measurements:
            for schedule, measurement in zip(schedules, measurements, strict=False):
                results[schedule] = measurement
                work.standing.count(measurement.median)
                self.told()
                if self._late():
                    break
        return results

    def _verdict(self, standing: Standing) -> str | None:
        """Return why a task gets no more trials, or None if it may go on."""
        if standing.trials >= (self.budget.trials_per_task or math.inf):
            return "its trials are spent"
        if standing.stale >= (self.budget.early_stop or math.inf):
            return f"no better schedule in {standing.stale} trials"
        if standing.best == math.inf and len(standing.history) >= _HOPELESS:
            return "no candidate could be measured"
        return None


def _drop(work: Work, arm: int, reason: str) -> None:
    """Take an arm away from a task; without any, the task is left."""
    del work.arms[arm]
    if not work.arms:
        work.standing.stopped = reason


def _by(record: Record) -> Contender:
    return Contender(record.engine, record.implementation)
