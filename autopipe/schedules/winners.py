"""Checks the fastest schedule of each task before it may win."""

from collections.abc import Callable, Sequence
from functools import partial

import tvm

from autopipe.measure.check import WrongAnswer, checked
from autopipe.measure.local import Measurer
from autopipe.measure.measurement import Candidate
from autopipe.records.record import Record
from autopipe.records.store import Row
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.replay import replay
from autopipe.schedules.tuner import Journal, Work


def confirm(
    works: Sequence[Work],
    journal: Journal,
    measurer: Measurer,
    conditions: Conditions,
    warn: Callable[[str], None],
) -> None:
    """Put aside each best record that computes something else than its workload.

    The next best then is looked at in its place. A check that can not be made, for lack of time or
    memory, condemns nothing: the build is verified as a whole later on.
    """
    doubtful = list(works)
    while doubtful:
        pairs = [(work, row) for work in doubtful if (row := journal.best(work)) is not None]
        candidates = [_candidate(work, row, conditions) for work, row in pairs]
        results = list(measurer.measure(candidates, best=0.0))  # nobody asks how fast they are
        doubtful = []
        for (work, row), result in zip(pairs, results, strict=True):
            if result.error is not None and result.error.startswith(WrongAnswer.__name__):
                journal.store.quarantine(row, result.error)
                warn(
                    f"task {work.standing.task.name}: a fast schedule was put aside: {result.error}"
                )
                doubtful.append(work)


def _candidate(work: Work, row: Row, conditions: Conditions) -> Candidate:
    module = tvm.ir.load_json(work.text)
    return partial(_checked, module, row.record, conditions)


def _checked(module: tvm.IRModule, record: Record, conditions: Conditions) -> tvm.IRModule:
    scheduled = replay(module, record.implementation, record.schedule, conditions)
    return checked(module, scheduled, conditions.target)
