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
from autopipe.schedules.journal import Journal, contender
from autopipe.schedules.policy import SERIAL, Contender
from autopipe.schedules.work import Work

ROUNDS: Final = 3

_BEST: Final = 2
"""Schedules that take part, besides the plain loops."""

_PATIENCE: Final = 30.0
"""Seconds in which winners that were unsteady are timed again; one that was begun is ended."""

Serial = Callable[[Work], str | None]
"""Returns the schedule of a task without threads, or None if there is none."""


def run_off(works: Sequence[Work], journal: Journal, measurer: Rounds, serial: Serial) -> None:
    """Settle who wins each task that has a record at all; the unsteady ones twice."""
    for work in works:
        _settle(work, journal, measurer, serial)
    end = monotonic() + _PATIENCE
    for work in works:
        before = journal.best(work)
        if before is None or not before.record.unsteady or monotonic() >= end:
            continue
        settled = journal.settled.get(work.standing.task.workload)
        _settle(work, journal, measurer, serial, again=True)
        after = journal.best(work)
        if settled and after and _spread(after.record) > _spread(before.record):
            journal.settled[work.standing.task.workload] = settled


def _settle(
    work: Work, journal: Journal, measurer: Rounds, serial: Serial, *, again: bool = False
) -> None:
    some = _parts(work, journal, serial)
    if not some:
        return
    if not again and journal.resettle(work, some):
        return
    candidates = [work.candidate(by.implementation, schedule) for by, schedule in some]
    found = measurer.rounds(candidates, ROUNDS)
    journal.settle(work, dict(zip(some, found, strict=True)))


def _parts(work: Work, journal: Journal, serial: Serial) -> list[tuple[Contender, str]]:
    """Return who takes part: the fastest so far, each schedule once; nobody without a record."""
    ranked = [(contender(row.record), row.record.schedule) for row in journal.ranked(work)]
    some = list(dict.fromkeys(ranked))[:_BEST]
    if some and work.serial and (plain := serial(work)) is not None:
        some = list(dict.fromkeys([*some, (SERIAL, plain)]))
    return some


def _spread(record: Record) -> float:
    return max(record.seconds) / min(record.seconds)
