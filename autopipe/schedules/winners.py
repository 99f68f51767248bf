"""Checks the fastest schedule of each task before it may win."""

import math
from collections.abc import Sequence

import tvm

from autopipe.errors import StageError
from autopipe.records.record import Record
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.inspection import Judge
from autopipe.schedules.journal import Journal
from autopipe.schedules.quarantine import Suspect
from autopipe.schedules.replay import replay
from autopipe.schedules.work import Work


def confirm(works: Sequence[Work], journal: Journal, judge: Judge, conditions: Conditions) -> None:
    """Put aside each best record that computes something else than its workload.

    The next best then is looked at in its place. A check that can not be made, for lack of time or
    memory, condemns nothing: the build is verified as a whole later on.
    """
    doubtful = list(works)
    while doubtful:
        rows = [(work, row) for work in doubtful if (row := journal.best(work)) is not None]
        doubtful = []
        suspects = []
        for work, row in rows:
            if row.id in journal.sound:
                continue
            try:
                suspects.append((work, row, _suspect(work, row.record, conditions)))
            except StageError:  # measured by another release, or with another extension
                journal.unfit.add(row.id)
                doubtful.append(work)
        verdicts = judge.judge([suspect for _, _, suspect in suspects])
        for (work, row, _), verdict in zip(suspects, verdicts, strict=True):
            if verdict.right is False:
                journal.store.quarantine(row, verdict.reason or "")
                doubtful.append(work)
            else:
                journal.sound.add(row.id)
    for work in works:
        best = journal.best(work)
        work.standing.best = best.record.median if best is not None else math.inf


def _suspect(work: Work, record: Record, conditions: Conditions) -> Suspect:
    module = tvm.ir.load_json(work.text)
    scheduled = replay(module, record.implementation, record.schedule, conditions)
    return Suspect(
        work.standing.task.name, record.engine, record.implementation, record.schedule, module,
        scheduled,
    )  # fmt: skip
