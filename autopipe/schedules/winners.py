"""Checks the fastest schedule of each task before it may win."""

from collections.abc import Sequence

import tvm

from autopipe.errors import StageError
from autopipe.records.store import Row
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.inspection import Inspector
from autopipe.schedules.journal import Journal
from autopipe.schedules.quarantine import Suspect
from autopipe.schedules.replay import replay
from autopipe.schedules.work import Work


def confirm(
    works: Sequence[Work], journal: Journal, inspector: Inspector, conditions: Conditions
) -> None:
    """Put aside each best record that computes something else than its workload.

    The next best then is looked at in its place. A check that can not be made, for lack of time or
    memory, condemns nothing: the build is verified as a whole later on.
    """
    doubtful = list(works)
    while doubtful:
        pairs = [(work, row) for work in doubtful if (row := journal.best(work)) is not None]
        doubtful = []
        suspects = []
        for work, row in pairs:
            suspect = _suspect(work, row, conditions)
            if isinstance(suspect, StageError):  # it was measured by another release
                journal.store.quarantine(row, str(suspect))
                doubtful.append(work)
            else:
                suspects.append((work, row, suspect))
        verdicts = inspector.judge([suspect for _, _, suspect in suspects])
        for (work, row, _), verdict in zip(suspects, verdicts, strict=True):
            if verdict.right is False:
                journal.store.quarantine(row, verdict.reason or "")
                doubtful.append(work)
    for work in works:
        best = journal.best(work)
        work.standing.best = best.record.median if best is not None else work.standing.best


def _suspect(work: Work, row: Row, conditions: Conditions) -> Suspect | StageError:
    record, module = row.record, tvm.ir.load_json(work.text)
    try:
        scheduled = replay(module, record.implementation, record.schedule, conditions)
    except StageError as error:
        return error
    return Suspect(
        work.standing.task.name, record.engine, record.implementation, record.schedule, module,
        scheduled,
    )  # fmt: skip
