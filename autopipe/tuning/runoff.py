"""The run-off: who looks fastest is timed once more, against the runner-up and the plain loops.

Trials are measured one after the other over minutes, and a machine is never alone for so long. Here
all are timed in turn, so that what else goes on falls on each of them, and the median of the rounds
decides. The loops without threads take part for every task, so that no winner is slower.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from autopipe.measure.local import Rounds
from autopipe.records.record import Record
from autopipe.schedules.policy import SERIAL, Contender
from autopipe.tuning.journal import Journal, contender
from autopipe.tuning.task_state import Work

ROUNDS: Final = 3

_BEST: Final = 2
"""Schedules that take part, besides the plain loops."""

_PATIENCE: Final = 30.0
"""Seconds in which winners that were unsteady are timed again; one that was begun is ended."""

Part = tuple[Contender, str]
"""Who proposed a schedule, and the schedule."""

Serial = Callable[[Work], str | None]
"""Returns the schedule of a task without threads, or None if there is none."""


def run_off(works: Sequence[Work], journal: Journal, measurer: Rounds, serial: Serial) -> None:
    """Settle who wins each task that has a record at all; the unsteady ones twice."""
    for work in works:
        parts = _parts(work, journal, serial)
        if not journal.resettle(work, parts):
            _settle(work, parts, journal, measurer)
    end = monotonic() + _PATIENCE
    for work in works:
        before = journal.best(work)
        if before is None or not before.record.unsteady or monotonic() >= end:
            continue
        rows = journal.settled_rows(work)
        _settle(work, [_part(row.record) for row in rows], journal, measurer)
        after = journal.best(work)
        if rows and after and _spread(after.record) > _spread(before.record):
            journal.settled[work.standing.task.workload] = {row.id for row in rows}


def _settle(work: Work, parts: Sequence[Part], journal: Journal, measurer: Rounds) -> None:
    if parts:
        candidates = [work.candidate(by.implementation, schedule) for by, schedule in parts]
        found = measurer.rounds(candidates, ROUNDS)
        journal.settle(work, dict(zip(parts, found, strict=True)))


def _parts(work: Work, journal: Journal, serial: Serial) -> list[Part]:
    """Return who takes part: the fastest so far, each schedule once; nobody without a record."""
    ranked = dict.fromkeys(_part(row.record) for row in journal.ranked(work))
    some = list(ranked)[:_BEST]
    plain = serial(work) if some and work.serial else None
    if plain is not None and all(schedule != plain for _, schedule in some):
        some.append((SERIAL, plain))
    return some


def _part(record: Record) -> Part:
    return contender(record), record.schedule


def _spread(record: Record) -> float:
    return max(record.seconds) / min(record.seconds)
