"""Checks the fastest schedule of each task before it may win."""

import math
from collections.abc import Sequence

from autopipe.compiler import module_io
from autopipe.processes.contained import Failed
from autopipe.records.record import Record
from autopipe.safety.inspection import NO_TIME, ScheduleChecker
from autopipe.safety.maker import Maker, Refused
from autopipe.safety.quarantine import Suspect
from autopipe.safety.verdict import Finding
from autopipe.tuning.journal import Journal, Proposal, contender
from autopipe.tuning.task_state import TaskState


def confirm(
    states: Sequence[TaskState], journal: Journal, judge: ScheduleChecker, maker: Maker
) -> None:
    """Put aside each best record that computes something else than its workload, or fails.

    The next best then is looked at in its place. A check that can not be made, for lack of time or
    memory, condemns nothing: the build is verified as a whole later on.
    """
    doubtful = list(states)
    while doubtful:
        rows = [(state, row) for state in doubtful if (row := journal.best(state)) is not None]
        doubtful = []
        suspects = []
        for state, row in rows:
            if row.id in journal.sound:
                continue
            try:
                suspects.append((state, row, _suspect(state, row.record, maker)))
            except (Refused, Failed) as error:
                maker.left_out(state.task.name, contender(row.record), error)
                journal.unfit.add(row.id)
                doubtful.append(state)
        verdicts = judge.judge([suspect for _, _, suspect in suspects])
        for (state, row, _), verdict in zip(suspects, verdicts, strict=True):
            if verdict.condemns:
                journal.condemn(state, Proposal.of(row.record))
                doubtful.append(state)
                if verdict.finding is Finding.WRONG:
                    journal.store.quarantine(row, verdict.reason or "")
            elif verdict is not NO_TIME:
                journal.sound.add(row.id)
    for state in states:
        best = journal.best(state)
        state.best = best.record.median if best is not None else math.inf


def _suspect(state: TaskState, record: Record, maker: Maker) -> Suspect:
    task = state.task.name
    scheduled = maker.replay(task, *Proposal.of(record))
    return Suspect(
        task, record.engine, record.implementation, record.schedule,
        module_io.from_json(state.text), scheduled,
    )  # fmt: skip
