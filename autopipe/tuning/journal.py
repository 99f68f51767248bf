"""Where trials are written down, and what is known from there."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from autopipe.environment.facet import Facet
from autopipe.measure.measurement import Measurement
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context
from autopipe.records.about import WorkloadInfo
from autopipe.records.record import Platform, Record
from autopipe.records.session import RUN_OFF, Session
from autopipe.records.store import RecordStore, StoredRecord
from autopipe.schedules import one_thread
from autopipe.schedules.engines.engine import MeasuredSchedule
from autopipe.schedules.policy import Contender
from autopipe.tuning.task_state import TaskState

_HARDLY: Final = 1.02
"""A time that is so many times longer may as well be shorter."""


class Proposal(NamedTuple):
    """A schedule, and who proposes it."""

    by: Contender
    schedule: str
    """As `replay` reads it."""

    @classmethod
    def of(cls, record: Record) -> "Proposal":
        """Return what a record is a trial of."""
        return cls(contender(record), record.schedule)

    @classmethod
    def untuned(cls, state: TaskState) -> "Proposal | None":
        """Return what an untuned build has, which may be slower in its trial: the first start."""
        return next((cls(*start) for start in state.starts.items()), None)


@dataclass(slots=True)
class Journal:
    """The records of this platform, and this session's; it grows with every trial."""

    store: RecordStore
    platform: Platform
    session: Session
    clock: str | None = None
    """The clock of this session's times; null for a loop around one kernel."""
    elsewhere: Mapping[str, object] | None = None
    """The machine that measures, where that is another one than this, if of the same kind."""
    sound: set[int] = field(default_factory=set)
    """Rows whose schedules were found to be right, or could not be checked, by this process."""
    unfit: set[int] = field(default_factory=set)
    """Rows that make no schedule here, such as those of another version of a template, or one
    that fails."""
    settled: dict[str, set[int]] = field(default_factory=dict)
    """Rows of the run-offs of this process, by workload: where there are any, one of them wins."""
    decided: dict[str, Proposal] = field(default_factory=dict)
    """Who wins inside the whole model, by workload, where it is not who won the trials."""
    left_out: set[str] = field(default_factory=set)
    """Implementations that win no task: libraries that are not worth their size."""
    threaded: set[str] = field(default_factory=set)
    """Workloads that no setting of a template on one thread may win: nobody decides them inside the
    model."""
    condemned: set[tuple[str, Proposal]] = field(default_factory=set)
    """Schedules, by workload and who proposed them, that may not win and need no other trial."""

    def rows(self, state: TaskState, since: int = 0) -> list[StoredRecord]:
        """Return all that was ever measured of a task here by contenders that may win it.

        Only what was written behind row `since`.
        """
        return [
            row
            for row in self.store.rows(state.task.workload, state.text, self.platform, since)
            if row.id not in self.unfit and state.admits(contender(row.record))
        ]

    def tried(self, state: TaskState) -> set[Proposal]:
        """Return the schedules of a task that need no other trial."""
        condemned = {
            proposal for workload, proposal in self.condemned if workload == state.task.workload
        }
        return condemned | {Proposal.of(row.record) for row in self.rows(state)}

    def known(self, state: TaskState, by: Contender) -> list[MeasuredSchedule]:
        """Return what was ever measured of a contender's schedules on this platform."""
        own = [row.record for row in self.rows(state) if contender(row.record) == by]
        return [MeasuredSchedule(record.schedule, record.median) for record in own]

    def earlier(self, state: TaskState) -> int:
        """Return how many records of a task earlier sessions have left."""
        return sum(row.record.session != self.session.name for row in self.rows(state))

    def best(self, state: TaskState) -> StoredRecord | None:
        """Return the record that wins a task: who won inside the model, or else its run-off.

        A run-off changes what an untuned build has for what is faster by 2 % at least: less is
        noise, and what a model runs best the rules know as well.
        """
        settled, ranked = self.settled_rows(state), self.ranked(state)
        decided = self.decided.get(state.task.workload)
        own = [row for row in (*settled, *ranked) if Proposal.of(row.record) == decided]
        return next(iter(own or _held(state, settled) or settled or ranked), None)

    def settled_rows(self, state: TaskState) -> list[StoredRecord]:
        """Return the records of the run-off of a task, the fastest first."""
        settled = self.settled.get(state.task.workload, set())
        return [row for row in self.ranked(state) if row.id in settled]

    def ranked(self, state: TaskState) -> list[StoredRecord]:
        """Return the records that may win a task, the fastest first, coarse times after others.

        Where the rule selects the first engine, they are of that alone.
        """
        alone_wins = state.task.workload not in self.threaded
        timed = [
            row
            for row in self.rows(state)
            if row.record.median < math.inf
            and row.record.implementation not in self.left_out
            and (alone_wins or not one_thread.is_setting(row.record.schedule))
        ]
        rule = state.contest.rule
        for engine in rule.engines if rule.select == "first" else ():
            own = [row for row in timed if row.record.engine == engine]
            if own:
                timed = own
                break
        return sorted(timed, key=lambda row: (row.record.cut, row.record.median))

    def condemn(self, state: TaskState, proposal: Proposal) -> None:
        """Leave a schedule out for as long as this process lives."""
        rows = self.rows(state)
        self.unfit |= {row.id for row in rows if Proposal.of(row.record) == proposal}
        self.condemned.add((state.task.workload, proposal))

    def settle(
        self, state: TaskState, results: Mapping[Proposal, Measurement]
    ) -> StoredRecord | None:
        """Put the times of a run-off on the disk; return the row that wins it.

        They are no trials: a run that is interrupted and goes on finds its budget as it was.
        """
        before = {row.id for row in self.rows(state)}
        timed = {proposal: result for proposal, result in results.items() if result.error is None}
        self._add(state, timed, self._run_off)
        own = {row.id for row in self._run(state) if row.id not in before}
        if own:
            self.settled[state.task.workload] = own
        return self.best(state)

    def resettle(self, state: TaskState, parts: Collection[Proposal]) -> bool:
        """Take the run-off that this session has made before it was interrupted, if it is whole."""
        own = {Proposal.of(row.record): row.id for row in self._run(state)}
        if not (parts and own.keys() >= set(parts)):
            return False
        self.settled[state.task.workload] = {own[part] for part in parts}
        return True

    def write(self, state: TaskState, proposal: Proposal, result: Measurement) -> None:
        """Put a trial on the disk, with the time it took from the budget."""
        self._add(state, {proposal: result}, self.session.name)
        self.session.trials += 1
        self.session.save(durably=False)  # the store has counted it durably

    @property
    def _run_off(self) -> str:
        return f"{self.session.name}{RUN_OFF}"

    def _run(self, state: TaskState) -> list[StoredRecord]:
        return [row for row in self.rows(state) if row.record.session == self._run_off]

    def _add(self, state: TaskState, results: Mapping[Proposal, Measurement], session: str) -> None:
        for worker in dict.fromkeys(result.by for result in results.values()):
            own = {each: result for each, result in results.items() if result.by == worker}
            records = self._records(state, own, session)
            about = WorkloadInfo.of(state.task)
            self.store.add(self.platform, state.text, records, about, worker)

    def _records(
        self, state: TaskState, results: Mapping[Proposal, Measurement], session: str
    ) -> list[Record]:
        return [
            Record(
                workload=state.task.workload, engine=proposal.by.engine,
                implementation=proposal.by.implementation, schedule=proposal.schedule,
                seconds=result.seconds, error=result.error, cut=result.cut,
                measured=datetime.now(UTC).isoformat(timespec="seconds"), session=session,
            )
            for proposal, result in results.items()
        ]  # fmt: skip


@contextmanager
def open_journal(
    ctx: Context, trials: int, clock: str | None, device: Mapping[str, object]
) -> Iterator[Journal]:
    """Open the journal of a session that may make so many trials, the last one if it broke off.

    Records of another clock, and of another `device`, are those of another platform.

    Raises StoreError.
    """
    session = Session.resume(ctx.work, trials)
    platform = Platform.of(ctx.facts[Facet.TARGET], ctx.facts[Facet.TVM], device)
    platform = platform.timed_by(clock)
    with RecordStore.open(
        ctx.records, lambda text: ctx.emit(Warn(stage="tune", message=text))
    ) as store:
        _count(session, store, ctx)
        own = device is ctx.facts[Facet.DEVICE]
        elsewhere = None if own else dict(device)
        yield Journal(store, platform, session, clock, elsewhere)


def _count(session: Session, store: RecordStore, ctx: Context) -> None:
    """Have the store say how far the session has come, and warn where it has lost trials."""
    noted = session.trials
    session.trials = sum(tally.trials for tally in store.trials(session.name).values())
    lost = noted - session.trials
    if lost > 0:
        text = (
            f"{ctx.records} has {session.trials} of the {noted} trials that were measured before"
            f" the interruption: {lost} were lost or deleted, and are measured again"
        )
        ctx.emit(Warn(stage="tune", message=text))


def _held(state: TaskState, settled: Sequence[StoredRecord]) -> list[StoredRecord]:
    """Return what an untuned build has, if the fastest of a run-off is hardly faster."""
    untuned = Proposal.untuned(state)
    return [
        row
        for row in settled
        if Proposal.of(row.record) == untuned
        and row.record.median <= _HARDLY * settled[0].record.median
    ]


def contender(record: Record) -> Contender:
    """Return who proposed the schedule of a record."""
    return Contender(record.engine, record.implementation)
