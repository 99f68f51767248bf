"""A whole run of tuning on three workers, of which one is killed and one frozen in the midst."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from autopipe.measure.measurement import Measurement
from autopipe.records.record import REPEAT_SUFFIX, Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.schedules.policy import Contender
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from tests.farm.conftest import end, until
from tests.schedules.tasks import task
from tests.tuning.states import state_of

FIXED = {"AUTOPIPE_TEST_BENCH": "tests.farm.fixed", "AUTOPIPE_TEST_SECONDS": "0.3"}

COLUMNS = "engine, implementation, schedule, seconds, error, cut, session"


def rows(folder):
    """Return what the store has, in the order in which it came."""
    with closing(sqlite3.connect(folder / "records.sqlite", timeout=30)) as connection:
        try:
            return connection.execute(f"SELECT {COLUMNS} FROM records ORDER BY id").fetchall()
        except sqlite3.OperationalError:  # its tables are not there yet
            return []


@pytest.fixture(scope="module")
def tuned(place, tmp_path_factory):
    """Tune on workers that are lost meanwhile; return the folder, and what the run reported."""
    workers = [place.begin("whole", **FIXED) for _ in range(3)]
    for worker in workers:
        until(worker, "works for")
    folder = tmp_path_factory.mktemp("whole")
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.farm.tuning", folder, place.address, place.folder, "whole"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    while run.poll() is None and len(rows(folder)) < 3:
        time.sleep(0.05)
    workers[0].kill()
    workers[1].send_signal(signal.SIGSTOP)
    told, _ = run.communicate(timeout=120)
    for worker in workers:
        end(worker)
    assert run.returncode == 0
    return folder, told


@pytest.mark.fault("O1", "O2")
def test_a_run_that_loses_two_of_three_workers_loses_no_trial(tuned):
    folder, told = tuned
    assert told.startswith("10 trials (0 failed)")
    trials = [row for row in rows(folder) if not row[6].endswith(REPEAT_SUFFIX)]
    assert len(trials) == len({row[:3] for row in trials}) == 10


def decide(folder, measured, starts):
    """Append trials and repeats in a new store; return what wins there."""
    folder.mkdir()
    with RecordStore.open(folder / "records.sqlite", pytest.fail) as store:
        journal = Journal(store, Platform("t", "v", "d"), Session.resume(folder))
        searched = sorted(
            {row[0].by for row in measured if row[0].by.engine in ("ansor", "autotvm")}
        )
        state = state_of(task(0), searched, starts=starts)
        repeats = {}
        for proposal, found, is_repeat in measured:
            if is_repeat:
                repeats[proposal] = found
            else:
                journal.write(state, proposal, found)
        journal.add_repeats(state, repeats)
        won = journal.winner(state)
        assert won is not None
        return won.proposal, won.times


def test_a_farm_and_one_machine_decide_alike_on_equal_evidence(tuned, tmp_path):
    folder, _ = tuned
    measured = [
        (
            Proposal(Contender(engine, implementation), schedule),
            Measurement(tuple(json.loads(seconds)), error, cut=bool(cut), by=f"worker-{place % 2}"),
            session.endswith(REPEAT_SUFFIX),
        )
        for place, (engine, implementation, schedule, seconds, error, cut, session) in enumerate(
            rows(folder)
        )
    ]
    alone = [
        (proposal, Measurement(found.seconds, found.error, cut=found.cut), is_repeat)
        for proposal, found, is_repeat in sorted(measured, key=lambda row: row[0])
    ]
    starts = {one.by: one.schedule for one, _, _ in measured if one.by.engine == "static"}
    won, times = decide(tmp_path / "farm", measured, starts)
    assert (won, times) == decide(tmp_path / "alone", alone, starts)
    (record,) = (folder / "out/records.jsonl").read_text().splitlines()
    chosen = json.loads(record)
    assert (chosen["schedule"], tuple(chosen["seconds"])) == (won.schedule, times)
