"""The bench of a worker, with TVM: a schedule that came as text is built, timed and checked."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from autopipe.environment import environment


@pytest.fixture(scope="module")
def tuned(place, tmp_path_factory):
    """What a run has left that was measured by a worker of `autopipe worker`."""
    place.work("here", module="autopipe")
    folder = tmp_path_factory.mktemp("tuned")
    done = subprocess.run(
        [sys.executable, "-m", "tests.farm.tuning", folder, place.address, place.folder],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_task_is_tuned_by_a_worker(tuned):
    folder, done = tuned
    assert done.stdout.startswith("10 trials (0 failed)")
    (line,) = (folder / "out/records.jsonl").read_text().splitlines()
    assert json.loads(line)["trials"] == 10
    events = [json.loads(text) for text in done.stderr.splitlines() if text.startswith("{")]
    assert {event["workers"] for event in events if event["event"] == "tuning_progress"} == {1}


def test_the_machine_that_measured_is_in_records_and_artifact(tuned):
    folder, _ = tuned
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        found = connection.execute("SELECT DISTINCT device FROM records").fetchall()
    device = environment.describe_device()
    assert [json.loads(text)["cpu"] for (text,) in found] == [device["cpu"]]
    assert json.loads((folder / "out/tuning.json").read_text())["device"] == device


def test_a_schedule_is_checked_by_a_worker(place, tuned):
    done = subprocess.run(
        [sys.executable, "-m", "tests.farm.checking", place.address, place.folder],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loops, right, refused = json.loads(done.stdout)
    assert (loops, right) == (True, "right")
    assert "no trace" in refused
