"""A whole run beside a package that crashes, hangs and eats: it ends well and lists all of that."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SOURCE = '''
import os, signal, time

from autopipe.processes import contained
from autopipe.schedules.templates.template import Template

contained.SECONDS, contained.MEMORY = 4.0, 300 << 20
NAME, FAST = "bad", True

def width(module):
    """The first input's, by which the two tasks of the model are told apart."""
    return int(module["main"].params[0].shape[-1])

def rewrite(workload):
    if width(workload) == 128:
        time.sleep(60)

class Hungry(Template):
    name = "bad"
    version = 1
    settings = fill = apply = print

    def match(self, sch):
        if width(sch.mod) != 128:
            [bytearray(1 << 20) for _ in range(1 << 10)]

TEMPLATE = Hungry()

def gain(workload, hardware):
    return 1.0

class Engine:
    name = "bad"

    def __init__(self, conditions):
        pass

    def search(self, problem):
        return self

    def propose(self, count):
        os.write(2, b"going down")
        os.kill(os.getpid(), signal.SIGSEGV)
'''
POINTS = """
[autopipe.engines]
bad = bad_tasks:Engine
[autopipe.templates]
bad = bad_tasks:TEMPLATE
[autopipe.implementations]
bad = bad_tasks
"""
FAILED = {
    ("searching", "bad", "direct"): "killed by SIGSEGV",
    ("rewriting", "", "bad"): "no answer within 4 s",
    ("planning", "static", "direct"): "out of memory",
}


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    info = folder / "bad_tasks-0.1.dist-info"
    info.mkdir(parents=True)
    (folder / "bad_tasks.py").write_text(SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad_tasks\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(POINTS)
    return folder


@pytest.fixture
def run(site, tmp_path):
    """Run a program beside the bad package."""

    def run(*arguments):
        environ = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environ, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip

    return run


def autopipe(run, *settings):
    chosen = (
        "tuning.budget.trials=12", "schedules.rules=[{engines: [bad]}]", "benchmark=null",
        "tuning.measure={repeat: 1, min_repeat: 1ms}", *settings,
    )  # fmt: skip
    return run(
        "-m", "autopipe", "run", ROOT / "pipelines/mlp.yaml", "--json", "--store", "store",
        "--output", "dist", *(part for each in chosen for part in ("--set", each)),
    )  # fmt: skip


@pytest.mark.fault("D7", "D10", "G12")
def test_a_run_ends_well_and_lists_what_failed(run, tmp_path, no_leaks):
    done = autopipe(run)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dist" / "mlp.tar").exists()
    (library,) = (tmp_path / "store").rglob("library.json")
    tasks = json.loads(library.read_text())["tasks"]
    found = [row for task in tasks for row in task["failures"]]
    assert {(row["doing"], row["engine"], row["implementation"]) for row in found} == set(FAILED)
    warnings = [json.loads(line) for line in done.stdout.splitlines() if '"warning"' in line]
    for row in found:
        how = FAILED[row["doing"], row["engine"], row["implementation"]]
        assert row["how"] == how
        assert any(how in each["message"] and row["folder"] in each["message"] for each in warnings)
    for row in {row["doing"]: row for row in found}.values():
        shown = run(tmp_path / "store" / "records" / row["folder"] / "reproduce.py")
        assert (shown.returncode, row["how"] in shown.stderr) == (1, True), shown.stderr
    log = next((tmp_path / "store" / "logs").glob("tune-*")).read_text()
    assert "going down" in log

    fatal = autopipe(run, "tasks.on_task_failure=fail", "numerics.fast_algorithms=false")
    assert fatal.returncode == 4
    assert "failed twice: " in fatal.stderr
    assert "Traceback" not in fatal.stderr
