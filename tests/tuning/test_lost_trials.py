"""Trials that a session has noted, and that the store has lost."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from autopipe.pipeline.events import Event
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.tuning.journal import _recount_trials

ROOT = Path(__file__).parents[2]

MEASURED = """
import os, sys
from dataclasses import replace
from pathlib import Path
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from tests.records.written import HERE, MODULE, record
folder = Path(sys.argv[1])
session = Session.resume(folder, 24)
store = RecordStore.open(folder / "records.sqlite", print)
for turn in range(10):
    store.add(HERE, MODULE, [record((1.0 + turn,))._replace(session=session.name)])
    session.trials += 1
    session.save()
os._exit(9)
"""


@pytest.mark.fault("M5")
@pytest.mark.parametrize("cut", [False, True])
def test_a_log_that_was_cut_is_told_with_what_it_costs(tmp_path: Path, *, cut: bool) -> None:
    """SQLite takes the sound beginning of its log and says nothing of the rest."""
    killed = subprocess.run([sys.executable, "-c", MEASURED, tmp_path], cwd=ROOT, check=False)
    assert killed.returncode == 9
    log = tmp_path / "records.sqlite-wal"
    if cut:
        os.truncate(log, log.stat().st_size // 2)
    session = Session.resume(tmp_path, 24)
    assert session.trials == 10
    events: list[Event] = []
    ctx = SimpleNamespace(records=tmp_path / "records.sqlite", emit=events.append)
    with RecordStore.open(ctx.records, lambda _: None) as store:
        _recount_trials(session, store, ctx)  # type: ignore[arg-type]
    if not cut:
        assert (session.trials, events) == (10, [])
        return
    assert 0 < session.trials < 10
    (event,) = events
    lost = 10 - session.trials
    assert getattr(event, "message", "") == (
        f"{ctx.records} has {session.trials} of the 10 trials that were measured before the"
        f" interruption: {lost} were lost or deleted, and are measured again"
    )
