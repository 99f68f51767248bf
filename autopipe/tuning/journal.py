"""Where trials are written down, and the evidence that follows from them and from later steps."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from autopipe.environment.facet import Facet
from autopipe.measure.measurement import Measurement
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context
from autopipe.records.about import WorkloadInfo
from autopipe.records.record import REPEAT_SUFFIX, Platform, Record
from autopipe.records.session import Session
from autopipe.records.store import RecordStore, StoredRecord
from autopipe.schedules.engines.engine import MeasuredSchedule
from autopipe.tuning.evidence import Proposal, TaskEvidence
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.winner import pick_winner, rank_repeats, rank_trials


@dataclass(slots=True)
class Journal:
    """The records of this platform, and the evidence of this session; both only grow."""

    store: RecordStore
    platform: Platform
    session: Session
    clock: str | None = None
    """The clock of this session's times; null for a loop around one kernel."""
    elsewhere: Mapping[str, object] | None = None
    """The machine that measures, where that is another one than this, if of the same kind."""
    _evidence: dict[str, list[TaskEvidence]] = field(default_factory=dict)
    """By workload."""
    _last: dict[str, int] = field(default_factory=dict)
    """The newest row of each workload that is evidence here."""

    def rows(self, state: TaskState, since: int = 0) -> list[StoredRecord]:
        """Return the records of a task measured here, of arms that may win it.

        Only rows behind `since`, and none of schedules that failed their check. New rows become
        evidence.
        """
        name = state.task.workload
        rows = self.store.rows(name, state.text, self.platform, since)
        for row in rows:
            if row.id > self._last.get(name, 0):
                self._evidence.setdefault(name, []).append(_to_evidence(row))
        self._last[name] = max(self._last.get(name, 0), *(row.id for row in rows), 0)
        failed_proposals = {
            one.proposal for one in self._evidence.get(name, ()) if one.check == "failed"
        }
        return [
            row
            for row in rows
            if state.admits(Proposal.of(row.record).by)
            and Proposal.of(row.record) not in failed_proposals
        ]

    def evidence(self, state: TaskState) -> list[TaskEvidence]:
        """Return the evidence about the schedules of arms that may win a task."""
        if state.task.workload not in self._last:
            self.rows(state)
        records = self._evidence.get(state.task.workload, ())
        return [one for one in records if state.admits(one.proposal.by)]

    def append(self, state: TaskState, *evidence: TaskEvidence) -> None:
        """Append evidence that is in no record."""
        self.evidence(state)
        self._evidence.setdefault(state.task.workload, []).extend(evidence)

    def add_verdict(
        self,
        state: TaskState,
        proposal: Proposal,
        check: Literal["passed", "failed", "excluded"],
        reason: str = "",
    ) -> None:
        """Append the result of a check of a schedule."""
        self.append(state, TaskEvidence(proposal, "check", check=check, by=reason))

    def exclude(self, state: TaskState, matches: Callable[[Proposal], bool], reason: str) -> None:
        """Exclude the known schedules that match: they may be right and fast, and win no task."""
        for proposal in {one.proposal for one in self.evidence(state)}:
            if matches(proposal):
                self.add_verdict(state, proposal, "excluded", reason)

    def winner(self, state: TaskState) -> TaskEvidence | None:
        """Return the times of the schedule that wins a task."""
        return pick_winner(
            self.evidence(state), untuned=state.untuned, engines=state.preferred_engines
        )

    def ranked(self, state: TaskState) -> list[TaskEvidence]:
        """Return the times of all schedules that may win a task, the fastest first."""
        return rank_trials(self.evidence(state), engines=state.preferred_engines)

    def repeats(self, state: TaskState) -> list[TaskEvidence]:
        """Return the times of the repeats that decide a task, the fastest first."""
        return rank_repeats(self.evidence(state), engines=state.preferred_engines)

    def quarantine(self, state: TaskState, proposal: Proposal, reason: str) -> None:
        """Quarantine the records of a schedule with wrong results, for all later sessions."""
        for row in self.store.rows(state.task.workload, state.text, self.platform):
            if Proposal.of(row.record) == proposal:
                self.store.quarantine(row, reason)

    def has_verdict(self, state: TaskState, proposal: Proposal, check: str) -> bool:
        """Tell whether the check of a schedule has this result."""
        records = self.evidence(state)
        return any(one.proposal == proposal and one.check == check for one in records)

    def tried(self, state: TaskState) -> set[Proposal]:
        """Return the schedules of a task that need no other trial."""
        self.rows(state, self._last.get(state.task.workload, 0))
        return {one.proposal for one in self.evidence(state)}

    def known(self, state: TaskState, implementation: str) -> list[MeasuredSchedule]:
        """Return all measured schedules of an implementation on this platform, of any engine.

        So `autotvm` knows the time of a setting that `static` filled, and does not repeat it.
        """
        records = [row.record for row in self.rows(state)]
        records = [r for r in records if Proposal.of(r).by.implementation == implementation]
        return [MeasuredSchedule(record.schedule, record.median) for record in records]

    def earlier(self, state: TaskState) -> int:
        """Return how many records of a task earlier sessions have left."""
        return sum(row.record.session != self.session.name for row in self.rows(state))

    def write(self, state: TaskState, proposal: Proposal, result: Measurement) -> None:
        """Write a trial to disk, with the time it took from the budget."""
        self._store_results(state, {proposal: result}, self.session.name)
        self.session.trials += 1
        self.session.save(durably=False)  # the store has counted it durably
        self.rows(state, self._last.get(state.task.workload, 0))

    def add_repeats(self, state: TaskState, results: Mapping[Proposal, Measurement]) -> None:
        """Write times of repeated measurement to disk, and append them as one series.

        They are no trials: a run that is interrupted and goes on finds its budget as it was.
        """
        self._append_rows(state, self._store_uncounted(state, results), self._next_series(state))

    def add_uncounted(self, state: TaskState, results: Mapping[Proposal, Measurement]) -> None:
        """Write trials of schedules that no search proposed, and append them as trials.

        They are not counted in the budget, as repeats are not.
        """
        self._append_rows(state, self._store_uncounted(state, results), 0)

    def recall_repeats(self, state: TaskState, parts: Collection[Proposal]) -> bool:
        """Append the repeats that this session made before an interruption, if of all `parts`."""
        rows = {
            Proposal.of(row.record): row
            for row in self.rows(state)
            if row.record.session == self._repeat_session
        }
        if not (parts and rows.keys() >= set(parts)):
            return False
        self._append_rows(state, [rows[part] for part in parts], self._next_series(state))
        return True

    @property
    def _repeat_session(self) -> str:
        return f"{self.session.name}{REPEAT_SUFFIX}"

    def _next_series(self, state: TaskState) -> int:
        return 1 + max((one.series for one in self.evidence(state)), default=0)

    def _store_uncounted(
        self, state: TaskState, results: Mapping[Proposal, Measurement]
    ) -> list[StoredRecord]:
        """Write the results that have a time; return all rows that are new since."""
        self.evidence(state)
        since = self._last.get(state.task.workload, 0)
        timed_results = {
            proposal: result for proposal, result in results.items() if result.error is None
        }
        self._store_results(state, timed_results, self._repeat_session)
        return self.store.rows(state.task.workload, state.text, self.platform, since)

    def _append_rows(self, state: TaskState, rows: Collection[StoredRecord], series: int) -> None:
        """Append the rows that this session has not counted; others are of other runs."""
        name = state.task.workload
        own_rows = [row for row in rows if row.record.session == self._repeat_session]
        self.append(state, *(_to_evidence(row, series) for row in own_rows))
        self._last[name] = max(self._last.get(name, 0), *(row.id for row in rows), 0)

    def _store_results(
        self, state: TaskState, results: Mapping[Proposal, Measurement], session: str
    ) -> None:
        records = self._build_records(state, results, session)
        self.store.add(self.platform, state.text, records, WorkloadInfo.of(state.task))

    def _build_records(
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
    """Open the journal of a session of at most `trials` trials; an interrupted session is resumed.

    Records of another clock, and of another `device`, are those of another platform.

    Raises StoreError.
    """
    session = Session.resume(ctx.work, trials)
    platform = Platform.of(ctx.facts[Facet.TARGET], ctx.facts[Facet.TVM], device)
    platform = platform.timed_by(clock)
    with RecordStore.open(
        ctx.records, lambda text: ctx.emit(Warn(stage="tune", message=text))
    ) as store:
        _recount_trials(session, store, ctx)
        is_local = device is ctx.facts[Facet.DEVICE]
        elsewhere = None if is_local else dict(device)
        yield Journal(store, platform, session, clock, elsewhere)


def _recount_trials(session: Session, store: RecordStore, ctx: Context) -> None:
    """Recount the trials of the session in the store, and warn about lost trials."""
    before = session.trials
    session.trials = sum(tally.trials for tally in store.trials(session.name).values())
    lost = before - session.trials
    if lost > 0:
        text = (
            f"{ctx.records} has {session.trials} of the {before} trials that were measured before"
            f" the interruption: {lost} were lost or deleted, and are measured again"
        )
        ctx.emit(Warn(stage="tune", message=text))


def _to_evidence(row: StoredRecord, series: int = 0) -> TaskEvidence:
    """Convert a record to evidence: a trial, or with a series a repeat."""
    record = row.record
    return TaskEvidence(
        Proposal.of(record), "repeat" if series else "trial",
        record.seconds if record.median < math.inf else (),
        by=record.session, series=series, coarse=record.cut, row=row.id,
    )  # fmt: skip
