"""A whole run, killed with SIGKILL again and again, and started again as a person would."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BATCH = 8
TRIALS = 24


def start(folder):
    """Start the checked-in mlp with a small budget; its events go to a pipe."""
    sets = (
        f"tuning.budget.trials={TRIALS}", f"tuning.batch={BATCH}", "tuning.budget.time=null",
        "benchmark.rounds=1", "benchmark.repeat=2",
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
        return connection.execute("SELECT count(*) FROM records").fetchone()[0]


def check(folder, kills):
    runs, kept = [], 0
    for kill in kills:
        runs.append(kill(start(folder)))
        assert measured(folder) >= kept, "trials were lost"
        kept = measured(folder)
        told = [event["trials"] for event in runs[-1] if event["event"] == "tuning_progress"]
        assert kept >= max(told, default=0) - BATCH
    process = start(folder)
    output, complaints = process.communicate()
    assert process.returncode == 0, complaints.decode()
    runs.append(events(output))

    finished = Counter(e["stage"] for run in runs for e in run if e["event"] == "stage_finished")
    assert max(finished.values()) == 1, f"a finished stage ran again: {finished}"
    resumed = [e["trials"] for e in runs[-1] if e["event"] == "tuning_progress"]
    assert min(resumed, default=TRIALS) >= kept - BATCH
    assert measured(folder) <= TRIALS + BATCH * len(kills)
    assert (folder / "dist/mlp.tar").exists()
    assert sorted(path.name for path in (folder / "store/tmp").iterdir()) == []

    process = start(folder)
    again = events(process.communicate()[0])
    assert {e["event"] for e in again} == {"stage_cached", "stage_skipped", "run_finished"}


def test_a_run_killed_at_a_few_moments_ends_right(tmp_path, no_leaks):
    check(tmp_path, [at("tune", trials=BATCH + 1), at("verify")])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_ten_random_moments_ends_right(tmp_path, no_leaks, seed):
    chosen = random.Random(seed)
    check(tmp_path, [after(chosen.uniform(0.1, 9)) for _ in range(10)])
