"""Times that other runs of this store measure meanwhile: searches get them before they propose.

Two runs that tune the same task at the same time would else have the same schedules measured.
"""

from autopipe.records.store import StoredRecord
from autopipe.schedules.engines.engine import MeasuredSchedule
from autopipe.schedules.policy import Contender
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.task_state import TaskState


class ConcurrentRuns:
    """Reads the records of concurrent runs that are new to each search."""

    def __init__(self, journal: Journal) -> None:
        """Initialize from the journal of this platform."""
        self._journal = journal
        self._told: dict[tuple[str, Contender], int] = {}
        """The newest row known to the search of each workload and arm."""

    def known(self, state: TaskState, by: Contender) -> list[MeasuredSchedule]:
        """Return all measured schedules of an implementation, and mark them as known."""
        self._read_new_rows(state, by, 0)
        return self._journal.known(state, by.implementation)

    def news(self, state: TaskState, by: Contender) -> list[MeasuredSchedule]:
        """Return the schedules that other runs measured since the last call, of any engine.

        The best of this arm becomes the best time of the task.
        """
        session = self._journal.session.name
        since = self._told.get((state.task.workload, by), 0)
        rows = [
            row for row in self._read_new_rows(state, by, since) if row.record.session != session
        ]
        for row in rows:
            if Proposal.of(row.record).by == by:
                state.best = min(state.best, row.record.median)
                state.bandit.observe(by, row.record.median)
        return [MeasuredSchedule(row.record.schedule, row.record.median) for row in rows]

    def _read_new_rows(self, state: TaskState, by: Contender, last: int) -> list[StoredRecord]:
        every = self._journal.rows(state, last)
        search_key = state.task.workload, by
        self._told[search_key] = max(
            (row.id for row in every), default=self._told.get(search_key, 0)
        )
        return [
            row for row in every if Proposal.of(row.record).by.implementation == by.implementation
        ]
