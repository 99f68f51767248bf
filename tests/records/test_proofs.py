"""What counts as searched and measured by a store."""

from typing import Any

import pytest

from autopipe.artifacts.tuning import BestRecord, TunedTask, TuningReport
from autopipe.measure.measurement import Measurement
from autopipe.records.proofs import compute_claimed_shares, list_proofs
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.tasks.shares import TOO_LITTLE
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from tests.tuning.states import HERE, STATIC, state

RECORD = BestRecord(
    workload=state().task.workload, engine="static", implementation="direct", schedule="[]",
    seconds=(1e-3,), trials=1,
)  # fmt: skip


def report(session, stopped):
    task: dict[str, Any] = {"workload": RECORD.workload, "stopped": stopped, "contenders": ()}
    whole: dict[str, Any] = {"session": session, "tasks": (TunedTask.model_construct(**task),)}
    return TuningReport.model_construct(**whole)


@pytest.mark.parametrize(
    ("session", "stopped", "searched"),
    [("own", TOO_LITTLE, True), ("own", None, False), ("other", TOO_LITTLE, False)],
)
def test_a_task_at_its_bound_counts_as_searched_by_a_session_of_this_store(
    tmp_path, session, stopped, searched
):
    with RecordStore.open(tmp_path / "records.sqlite", print) as store:
        journal = Journal(store, HERE, Session.resume(tmp_path), None)
        journal.write(state(), Proposal(STATIC, "[]"), Measurement((1e-3,)))
        name = journal.session.name if session == "own" else "0123456789abcdef"
        winners = {RECORD.workload: RECORD}
        (proof,) = list_proofs(store, HERE, winners, report(name, stopped)).values()
    assert proof.searched == searched


def test_a_lock_claims_that_a_task_at_its_bound_was_searched():
    task = state().task
    for stopped, searched in ((TOO_LITTLE, 1.0), (None, 0.0)):
        tuned = {task.workload: report("s", stopped).tasks[0]}
        assert (
            compute_claimed_shares([task], {task.workload: (1e-3,)}, tuned)["searched"] == searched
        )
