"""Where trials are written down, and what is known from there."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from autopipe.measure.measurement import Measurement
from autopipe.records.about import About
from autopipe.records.record import Platform, Record
from autopipe.records.session import RUN_OFF, Session
from autopipe.records.store import Row, Store
from autopipe.schedules.engines.engine import Known
from autopipe.schedules.policy import Contender
from autopipe.tuning.task_state import Work


@dataclass(frozen=True, slots=True)
class Journal:
    """The records of this platform, and this session's."""

    store: Store
    platform: Platform
    session: Session
    sound: set[int] = field(default_factory=set)
    """Rows whose schedules were found to be right, or could not be checked, by this process."""
    unfit: set[int] = field(default_factory=set)
    """Rows that make no schedule here, such as those of another version of a template, or one
    that fails."""
    settled: dict[str, set[int]] = field(default_factory=dict)
    """Rows of the run-offs of this process, by workload: where there are any, one of them wins."""
    condemned: set[tuple[str, Contender, str]] = field(default_factory=set)
    """Schedules, by workload and who proposed them, that may not win and need no other trial."""

    def rows(self, work: Work) -> list[Row]:
        """Return all that was ever measured of a task here by contenders that may win it."""
        return [
            row
            for row in self.store.rows(work.standing.task.workload, work.text, self.platform)
            if row.id not in self.unfit and work.admits(contender(row.record))
        ]

    def known(self, work: Work, by: Contender) -> list[Known]:
        """Return what was ever measured of a contender's schedules on this platform."""
        own = [row.record for row in self.rows(work) if contender(row.record) == by]
        return [Known(record.schedule, record.median) for record in own]

    def best(self, work: Work) -> Row | None:
        """Return the record that wins a task: the fastest of its run-off, if there was one."""
        return next(iter(self.settled_rows(work) or self.ranked(work)), None)

    def settled_rows(self, work: Work) -> list[Row]:
        """Return the records of the run-off of a task, the fastest first."""
        settled = self.settled.get(work.standing.task.workload, set())
        return [row for row in self.ranked(work) if row.id in settled]

    def ranked(self, work: Work) -> list[Row]:
        """Return the records that may win a task, the fastest first, coarse times after others.

        Where the rule selects the first engine, they are of that alone.
        """
        timed = [row for row in self.rows(work) if row.record.median < math.inf]
        rule = work.contest.rule
        for engine in rule.engines if rule.select == "first" else ():
            own = [row for row in timed if row.record.engine == engine]
            if own:
                timed = own
                break
        return sorted(timed, key=lambda row: (row.record.cut, row.record.median))

    def condemn(self, work: Work, row: Row) -> None:
        """Leave a schedule out for as long as this process lives."""
        self.unfit.add(row.id)
        self.condemned.add(
            (work.standing.task.workload, contender(row.record), row.record.schedule)
        )

    def settle(
        self, work: Work, results: Mapping[tuple[Contender, str], Measurement]
    ) -> Row | None:
        """Put the times of a run-off on the disk; return the row that wins it.

        They are no trials: a run that is interrupted and goes on finds its budget as it was.
        """
        before = {row.id for row in self.rows(work)}
        session = self._run_off
        timed = {key: result for key, result in results.items() if result.error is None}
        records = [_record(work, *key, result, session) for key, result in timed.items()]
        self.store.add(self.platform, work.text, records, About.of(work.standing.task))
        own = {row.id for row in self._run(work) if row.id not in before}
        if own:
            self.settled[work.standing.task.workload] = own
        return self.best(work)

    def resettle(self, work: Work, parts: Collection[tuple[Contender, str]]) -> bool:
        """Take the run-off that this session has made before it was interrupted, if it is whole."""
        own = {(contender(row.record), row.record.schedule): row.id for row in self._run(work)}
        if not (parts and own.keys() >= set(parts)):
            return False
        self.settled[work.standing.task.workload] = {own[part] for part in parts}
        return True

    @property
    def _run_off(self) -> str:
        return f"{self.session.name}{RUN_OFF}"

    def _run(self, work: Work) -> list[Row]:
        return [row for row in self.rows(work) if row.record.session == self._run_off]

    def write(self, work: Work, by: Contender, results: Mapping[str, Measurement]) -> None:
        """Put measured schedules on the disk, with the time they took from the budget."""
        records = [
            _record(work, by, schedule, result, self.session.name)
            for schedule, result in results.items()
        ]  # fmt: skip
        self.store.add(self.platform, work.text, records, About.of(work.standing.task))
        self.session.trials += len(results)
        self.session.save(durably=False)  # the store has counted them durably


def _record(work: Work, by: Contender, schedule: str, result: Measurement, session: str) -> Record:
    return Record(
        workload=work.standing.task.workload, engine=by.engine, implementation=by.implementation,
        schedule=schedule, seconds=result.seconds, error=result.error, cut=result.cut,
        measured=datetime.now(UTC).isoformat(timespec="seconds"), session=session,
    )  # fmt: skip


def contender(record: Record) -> Contender:
    """Return who proposed a schedule."""
    return Contender(record.engine, record.implementation)
