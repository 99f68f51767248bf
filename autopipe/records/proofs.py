"""Measured and claimed times of the schedules that a model is built with."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from autopipe.artifacts.tuning import BestRecord, TunedTask, TuningReport
from autopipe.records.connection import wrap_store_errors
from autopipe.records.record import REPEAT_SUFFIX, Platform, is_steady
from autopipe.records.store import RecordDetails, RecordStore
from autopipe.tasks.shares import TOO_LITTLE, WITHOUT_SEARCH, Proof, compute_shares, is_searched
from autopipe.tasks.task import Task

_HERE: Final = "hash = ? AND records.here AND target = ? AND versions = ? AND device = ?"

_WINNER: Final = f"{_HERE} AND engine = ? AND implementation = ? AND schedule = ?"

_SEARCHED: Final = (
    "SELECT 1 FROM records JOIN workloads ON workloads.id = records.workload"  # noqa: S608
    f" WHERE {_HERE} AND engine NOT IN ({', '.join('?' * len(WITHOUT_SEARCH))}) LIMIT 1"
)

_SESSION: Final = "SELECT 1 FROM records WHERE here AND session IN (?, ?) LIMIT 1"


def list_proofs(
    store: RecordStore,
    platform: Platform,
    winners: Mapping[str, BestRecord],
    report: TuningReport,
) -> dict[str, Proof]:
    """List the proofs of the records that were measured here, by workload.

    Tasks that the report of *tune* states to be at their bound count as searched where its session
    measured here.

    The exact times of a record count if they were measured here; otherwise the last repeated
    measurement of its schedule, or else its fastest trial. Raises StoreError.
    """
    proven: dict[str, Proof] = {}
    at_bound = _list_at_bound(store, report)
    for workload, record in winners.items():
        place = platform.on(record.device).timed_by(record.clock)
        schedule_key = (record.engine, record.implementation, record.schedule)
        rows = store.every(_WINNER, (workload, *place, *schedule_key))
        timed_rows = [row for row in rows if row.wrong is None and row.rank < (True,)]
        if timed_rows:
            best = _choose_counted_row(timed_rows, record.seconds)
            was_searched = workload in at_bound or _has_row(
                store, _SEARCHED, (workload, *place, *WITHOUT_SEARCH)
            )
            proven[workload] = Proof(best.record.median, was_searched, not best.record.unsteady)
    return proven


def _list_at_bound(store: RecordStore, report: TuningReport) -> frozenset[str]:
    """List the workloads that this store's own session found too near their bound to search."""
    if not _has_row(store, _SESSION, (report.session, f"{report.session}{REPEAT_SUFFIX}")):
        return frozenset()
    return frozenset(task.workload for task in report.tasks if task.stopped == TOO_LITTLE)


def _has_row(store: RecordStore, query: str, values: Sequence[str]) -> bool:
    with wrap_store_errors(store.path):
        return store.connection.execute(query, values).fetchone() is not None


def _choose_counted_row(rows: Sequence[RecordDetails], seconds: tuple[float, ...]) -> RecordDetails:
    repeat_rows = [row for row in rows if row.record.session.endswith(REPEAT_SUFFIX)]
    equal_rows = [row for row in rows if row.record.seconds == seconds]
    return (
        [*repeat_rows, *equal_rows][-1]
        if repeat_rows or equal_rows
        else min(rows, key=lambda row: row.rank)
    )


def compute_claimed_shares(
    tasks: Iterable[Task],
    seconds: Mapping[str, Sequence[float]],
    tuned: Mapping[str, TunedTask],
) -> dict[str, float]:
    """Compute the shares that records claim: `seconds` and the report of *tune*, by workload."""
    proofs = {}
    for workload, times in seconds.items():
        contenders = tuned[workload].contenders if workload in tuned else ()
        engines = {contender.engine for contender in contenders if contender.trials}
        stop_reason = tuned[workload].stopped if workload in tuned else None
        proofs[workload] = Proof(median(times), is_searched(engines, stop_reason), is_steady(times))
    return compute_shares(tasks, proofs).named()
