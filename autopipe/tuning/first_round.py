"""The first round of tuning: what needs no search is measured everywhere before any search.

A task is built with one of these anyway, so that a record can only be faster; the heaviest task
comes first, so that even a short budget helps.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from autopipe.measure.local import Measurer
from autopipe.schedules.policy import Contender
from autopipe.tuning.journal import Journal, contender
from autopipe.tuning.task_state import Spending, Work

_TOGETHER: Final = 8
"""Candidates that are built at a time; more would keep the clock from being looked at."""


class Start(NamedTuple):
    """One schedule that costs nothing, of one task."""

    work: Work
    by: Contender
    schedule: str


def measure_starts(
    works: Sequence[Work],
    spending: Spending,
    measurer: Measurer,
    journal: Journal,
    told: Callable[[], None],
) -> None:
    """Time the starts of all tasks that are not known, as far as the budget goes."""
    measure(_unknown(works, spending, journal), spending, measurer, journal, told)
    for work in works:
        if work.starts:
            work.standing.history.append(work.standing.best)


def measure(
    starts: Sequence[Start],
    spending: Spending,
    measurer: Measurer,
    journal: Journal,
    told: Callable[[], None],
) -> None:
    """Time schedules and write them down, as far as the budget goes."""
    while starts and spending.left() > 0 and not spending.late():
        count = min(_TOGETHER, spending.left())
        _measure(starts[:count], spending, measurer, journal, told)
        starts = starts[count:]


def shares(works: Sequence[Work], journal: Journal) -> dict[int, float]:
    """Return each task's part of the model's time, by its index.

    As measured with its fastest start; a task without keeps the part that was estimated.
    """
    times = {}
    for work in works:
        started = work.started()
        found = [
            row.record.median
            for row in journal.rows(work)
            if started.get(contender(row.record)) == row.record.schedule
        ]
        if found and min(found) < math.inf:
            times[work.standing.task.index] = work.standing.task.calls * min(found)
    tasks = [work.standing.task for work in works]
    known = sum(task.share for task in tasks if task.index in times)
    total = sum(times.values())
    return {t.index: known * times[t.index] / total if t.index in times else t.share for t in tasks}


def _unknown(works: Sequence[Work], spending: Spending, journal: Journal) -> list[Start]:
    """Return what is left to measure, the heaviest task first."""
    found = []
    for work in sorted(works, key=lambda work: -work.standing.task.share):
        known = {(contender(row.record), row.record.schedule) for row in journal.rows(work)}
        name = work.standing.task.workload
        known |= {(by, schedule) for whose, by, schedule in journal.condemned if whose == name}
        fresh = [Start(work, *start) for start in work.started().items() if start not in known]
        found += fresh[: max(0, spending.allowance(work.standing))]
    return found


def _measure(
    starts: Sequence[Start],
    spending: Spending,
    measurer: Measurer,
    journal: Journal,
    told: Callable[[], None],
) -> None:
    candidates = [s.work.candidate(s.by.implementation, s.schedule) for s in starts]
    with closing(measurer.measure(candidates, rivals=False)) as measurements:
        for start, measurement in zip(starts, measurements, strict=False):
            start.work.standing.count(measurement.median)
            start.work.contest.note(start.by.implementation, measurement.median)
            journal.write(start.work, start.by, {start.schedule: measurement})
            told()
            if spending.late():
                break
