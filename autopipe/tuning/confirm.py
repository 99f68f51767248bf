"""Checks the fastest schedule of each task before it may win."""

import math
from collections.abc import Sequence

import tvm

from autopipe.processes.contained import Failed
from autopipe.records.record import Record
from autopipe.safety.inspection import Judge
from autopipe.safety.maker import Maker, Refused
from autopipe.safety.quarantine import Suspect
from autopipe.tuning.journal import Journal, contender
from autopipe.tuning.task_state import Work


def confirm(works: Sequence[Work], journal: Journal, judge: Judge, maker: Maker) -> None:
    """Put aside each best record that computes something else than its workload, or fails.

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
                suspects.append((work, row, _suspect(work, row.record, maker)))
            except (Refused, Failed) as error:
                maker.left_out(work.standing.task.name, contender(row.record), error)
                journal.unfit.add(row.id)
                doubtful.append(work)
        verdicts = judge.judge([suspect for _, _, suspect in suspects])
        for (work, row, _), verdict in zip(suspects, verdicts, strict=True):
            if verdict.right is False:
                journal.condemn(work, row)
                doubtful.append(work)
                if not verdict.failed:
                    journal.store.quarantine(row, verdict.reason or "")
            else:
                journal.sound.add(row.id)
    for work in works:
        best = journal.best(work)
        work.standing.best = best.record.median if best is not None else math.inf


def _suspect(work: Work, record: Record, maker: Maker) -> Suspect:
    task = work.standing.task.name
    scheduled = maker.replay(task, contender(record), record.schedule)
    return Suspect(
        task, record.engine, record.implementation, record.schedule,
        tvm.ir.load_json(work.text), scheduled,
    )  # fmt: skip
