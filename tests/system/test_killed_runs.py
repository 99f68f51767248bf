"""A whole run, killed with SIGKILL again and again, and started again as a person would."""

import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from autopipe.store.gc import verify_store
from autopipe.store.store import open_store
from tests.support.demo import command, environment

ROOT = Path(__file__).parents[2]
BATCH = 4
TRIALS = 12


def start(folder):
    """Start the checked-in mlp with a small budget; its events go to a pipe."""
    sets = (
        f"tuning.budget.trials={TRIALS}", f"tuning.batch={BATCH}", "tuning.budget.time=null",
        "tuning.measure={repeat: 1, min_repeat: 1ms}",
        "benchmark={against: [], rounds: 1, repeat: 2}",
    )  # fmt: skip
    return subprocess.Popen(
        [
            sys.executable, "-m", "autopipe", "run", ROOT / "pipelines/mlp.yaml", "--json",
            "--store", folder / "store", "--output", folder / "dist",
            *(argument for each in sets for argument in ("--set", each)),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
    )  # fmt: skip


def events(output):
    return [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith(b"\n")]


def after(seconds):
    """Kill a run after so many seconds, or when it is over."""

    def kill(process):
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        return events(process.communicate()[0])

    return kill


def at(stage, trials=0):
    """Kill a run once a stage has begun, and as many trials are told."""

    def kill(process):
        lines = b""
        for line in process.stdout:
            lines += line
            event = json.loads(line)
            if event.get("stage") == stage and event.get("trials", 0) >= trials:
                break
        process.send_signal(signal.SIGKILL)
        return events(lines + process.communicate()[0])

    return kill


def measured(folder):
    """Count the trials that a killed run has kept."""
    path = folder / "store/records/records.sqlite"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE name = 'records'")
        if not found.fetchone():
            return 0
        query = "SELECT count(*) FROM records WHERE session NOT LIKE '%/run-off'"  # no trials
        return connection.execute(query).fetchone()[0]


def check(folder, kills):
    runs, kept = [], 0
    for kill in kills:
        runs.append(kill(start(folder)))
        assert measured(folder) >= kept, "trials were lost"
        kept = measured(folder)
        told = [event["trials"] for event in runs[-1] if event["event"] == "tuning_progress"]
        assert kept >= max(told, default=0), "a trial was told of that is not on the disk"
    process = start(folder)
    output, complaints = process.communicate()
    assert process.returncode == 0, complaints.decode()
    runs.append(events(output))

    finished = Counter(e["stage"] for run in runs for e in run if e["event"] == "stage_finished")
    assert max(finished.values()) == 1, f"a finished stage ran again: {finished}"
    resumed = [e["trials"] for e in runs[-1] if e["event"] == "tuning_progress"]
    assert min(resumed, default=TRIALS) >= kept
    assert measured(folder) == TRIALS, "the budget was not what all runs together have spent"
    said = [e["after"] for run in runs[1:] for e in run if e["event"] == "stage_resumed"]
    assert all(re.match(rf"\d+ of {TRIALS} trials, \d+ s spent$", text) for text in said)
    assert (folder / "dist/mlp.tar").exists()
    assert sorted(path.name for path in (folder / "store/tmp").iterdir()) == []

    process = start(folder)
    again = events(process.communicate()[0])
    assert {e["event"] for e in again} == {
        "stage_cached", "stage_skipped", "run_finished", "tuned",
    }  # fmt: skip


@pytest.mark.fault("D1", "G1", "G10")
def test_a_run_killed_at_a_few_moments_ends_right(tmp_path, no_leaks):
    check(tmp_path, [at("tune", trials=2), at("tune", trials=BATCH + 3), at("verify")])


@pytest.mark.fault("D1", "G10")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_ten_random_moments_ends_right(tmp_path, no_leaks, seed):
    chosen = random.Random(seed)
    check(tmp_path, [after(chosen.uniform(0.1, 9)) for _ in range(10)])


def fake(folder):
    """Start the command line on stages without TVM."""
    return subprocess.Popen(
        command("run", folder / "demo.yaml", "--json", "-q"), cwd=folder,
        env=environment(do="write"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def after_events(count, seconds):
    """Kill a run so many seconds after so many events."""

    def kill(process):
        for _ in range(count):
            process.stdout.readline()
        return after(seconds)(process)

    return kill


MOMENTS = [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 50))]


@pytest.mark.fault("C1", "G1", "G13")
@pytest.mark.parametrize("seed", MOMENTS)
def test_a_run_of_fake_stages_killed_at_random_moments_ends_right(tmp_path, no_leaks, seed):
    chosen = random.Random(seed)
    (tmp_path / "model.txt").write_text("abc")
    (tmp_path / "demo.yaml").write_text("version: 1\nname: demo\nmodel: {path: model.txt}\n")
    for _ in range(chosen.randint(1, 3)):
        after_events(chosen.randrange(9), chosen.choice([0, 0.01, 0.1, 0.3]))(fake(tmp_path))
        assert [path.read_text() for path in tmp_path.glob("dist/demo.tar")] in ([], ["abc"])
    process = fake(tmp_path)
    output, complaints = process.communicate()
    assert process.returncode == 0, complaints.decode()
    assert events(output)[-1]["package"] == "dist/demo.tar"
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["demo.tar"]
    assert (tmp_path / "dist" / "demo.tar").read_text() == "abc"
    assert list((tmp_path / ".autopipe" / "tmp").iterdir()) == []
    with open_store(tmp_path / ".autopipe") as store:
        assert verify_store(store) == (4, [])
