"""Where trials are written down, and what is known from there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from autopipe.measure.measurement import Measurement
from autopipe.records.about import About
from autopipe.records.record import Platform, Record
from autopipe.records.session import Session
from autopipe.records.store import Row, Store
from autopipe.schedules.engine import Known
from autopipe.schedules.policy import Contender
from autopipe.schedules.work import Work


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
        """Return the record that wins a task: the fastest, a coarse time after the others.

        Where the rule selects the first engine, it is the fastest of that.
        """
        timed = [row for row in self.rows(work) if row.record.median < math.inf]
        rule = work.contest.rule
        for engine in rule.engines if rule.select == "first" else ():
            own = [row for row in timed if row.record.engine == engine]
            if own:
                timed = own
                break
        return min(timed, key=lambda row: (row.record.cut, row.record.median), default=None)

    def condemn(self, work: Work, row: Row) -> None:
        """Leave a schedule out for as long as this process lives."""
        self.unfit.add(row.id)
        self.condemned.add(
            (work.standing.task.workload, contender(row.record), row.record.schedule)
        )

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
            About.of(work.standing.task),
        )  # fmt: skip
        self.session.trials += len(results)
        self.session.save(durably=False)  # the store has counted them durably


def contender(record: Record) -> Contender:
    """Return who proposed a schedule."""
    return Contender(record.engine, record.implementation)
