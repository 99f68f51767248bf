"""Workers that lie about times: none of theirs wins, and they are named."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.farm.conftest import until

FIXED = {"AUTOPIPE_TEST_BENCH": "tests.farm.fixed", "AUTOPIPE_TEST_SECONDS": "0.02"}


def tuned(place, label, folder):
    """Tune, and return what is said of it: on the console, in the artifact, of each worker."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.farm.tuning", folder, place.address, place.folder, label],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        counts = connection.execute("SELECT worker, here, COUNT(*) FROM records GROUP BY 1, 2")
        rows = counts.fetchall()
    return done.stdout, [event.get("message", "") for event in events], rows


def word(folder):
    return json.loads((folder / "out/tuning.json").read_text())["farm"]


def joined(place, label, *lies, **variables):
    """Start a worker for each: honest for none, or one that says something else."""
    workers = [
        place.begin(label, **FIXED, **variables, **({"AUTOPIPE_TEST_LIES": each} if each else {}))
        for each in lies
    ]
    for worker in workers:
        until(worker, "works for")
    return workers


@pytest.mark.fault("O16")
@pytest.mark.parametrize("lies", ["fast", pytest.param("random", marks=pytest.mark.slow)])
def test_a_worker_that_lies_is_found_out_and_none_of_its_times_counts(place, tmp_path, lies):
    workers = joined(place, lies, None, None, lies)
    told, messages, rows = tuned(place, lies, tmp_path)
    liar = f"-{workers[-1].pid}-"
    (name,) = word(tmp_path)["doubted"]
    assert liar in name
    assert f"not believed: {name}" in told
    assert any(f"worker {name} gets no more trials: two others" in text for text in messages)
    assert told.startswith("10 trials")  # those of the liar were made again
    assert {here for worker, here, _ in rows if worker == name} <= {0}
    assert sum(count for _, here, count in rows if here) >= 10
    (record,) = (tmp_path / "out/records.jsonl").read_text().splitlines()
    assert 1e-3 <= min(json.loads(record)["seconds"]) < 2e-3  # as honest workers say
    for worker in workers:
        worker.kill()


@pytest.mark.fault("O17")
def test_where_nobody_can_tell_who_lies_that_is_said(place, tmp_path):
    one, other = joined(place, "few", None, "fast")
    (tmp_path / "two").mkdir()
    told, messages, _ = tuned(place, "few", tmp_path / "two")
    assert word(tmp_path / "two")["doubted"] == {}
    assert "tasks workers say different times, the slower count" in told
    assert any("nobody else can tell who is right" in text for text in messages)
    (record,) = (tmp_path / "two/out/records.jsonl").read_text().splitlines()
    assert min(json.loads(record)["seconds"]) >= 1e-3
    other.kill()
    (tmp_path / "one").mkdir()
    told, _, _ = tuned(place, "few", tmp_path / "one")
    assert word(tmp_path / "one") == {"doubted": {}, "witnesses": 0}
    assert "times are one worker's word" in told
    one.kill()


@pytest.mark.fault("O19")
def test_machines_that_get_slower_before_the_run_off_are_not_taken_for_liars(place, tmp_path):
    log = str(tmp_path / "log")
    workers = joined(
        place, "drift", None, None, None, AUTOPIPE_TEST_LOG=log, AUTOPIPE_TEST_DRIFT="10"
    )
    told, _, rows = tuned(place, "drift", tmp_path)
    assert told.startswith("10 trials")
    assert word(tmp_path) == {"doubted": {}, "witnesses": 2}
    assert all(here for _, here, _ in rows)
    (record,) = (tmp_path / "out/records.jsonl").read_text().splitlines()
    assert min(json.loads(record)["seconds"]) >= 3e-3  # as they all say in the run-off
    for worker in workers:
        worker.kill()


@pytest.mark.fault("O20")
def test_who_lies_only_where_nobody_else_is_asked_wins_nothing_by_that(place, tmp_path):
    workers = joined(place, "trials", None, None, "trials")
    tuned(place, "trials", tmp_path)
    (record,) = (tmp_path / "out/records.jsonl").read_text().splitlines()
    assert 1e-3 <= min(json.loads(record)["seconds"]) < 2e-3
    assert all(f"-{workers[-1].pid}-" in name for name in word(tmp_path)["doubted"])
    for worker in workers:
        worker.kill()
