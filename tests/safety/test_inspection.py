"""Verdicts: made in children, kept, and followed by the means to see that they are right."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from autopipe.compiler.labels.op_info import annotate_workload
from autopipe.environment.facet import Facet
from autopipe.errors import StageError, TargetError
from autopipe.processes import contained
from autopipe.safety import checking, job
from autopipe.safety.checking import Checker
from autopipe.safety.inspection import Inspector
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Finding, Verdict
from autopipe.schedules import templates
from autopipe.schedules.engines import static
from autopipe.schedules.engines.default import plan
from tests.schedules.bad_schedules import ENDS, doubled, spoil
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS, task
from tests.schedules.wrong_template import WRONG
from tests.support import here

FACTS = {Facet.TARGET: here.facts()}


class Counting(Checker):
    """Checks, and says how often it was asked to."""

    checks = 0

    def check(self, pieces):
        self.checks += len(pieces)
        return super().check(pieces)

    def plain_runs(self, piece):
        self.checks += 1
        return super().plain_runs(piece)


@pytest.fixture
def checker():
    return Counting(CONDITIONS)


@pytest.fixture
def said():
    return []


@pytest.fixture
def inspector(tmp_path, checker, said):
    return Inspector(tmp_path, FACTS, checker, failures(tmp_path, said))


def suspect(planned, workload):
    return Piece(
        "checking", "a task", workload, "static", planned.implementation, planned.schedule,
        planned.module,
    )  # fmt: skip


@pytest.fixture
def right():
    workload = doubled()
    return suspect(plan(workload, CONDITIONS), workload)


@pytest.fixture
def wrong(monkeypatch):
    monkeypatch.setattr(templates, "TEMPLATES", (WRONG,))
    workload = doubled()
    return suspect(static.plan(workload, CONDITIONS), workload)


def ending(way):
    workload = doubled()
    return Piece("checking", "a task", workload, "mine", "direct", "{}", spoil(workload, way))


def findings(inspector, *suspects):
    return [verdict.finding for verdict in inspector.judge(suspects)]


def test_a_verdict_is_remembered(inspector, checker, said, right):
    assert findings(inspector, right, right) == [Finding.RIGHT, Finding.RIGHT]
    once = checker.checks
    assert findings(inspector, right) == [Finding.RIGHT]
    assert (once, checker.checks, said) == (1, 1, [])


def test_what_is_said_of_ops_is_no_part_of_a_verdict(inspector, checker, right):
    """So *build* does not check again what *tune* has checked."""
    inspector.judge([right])
    assert task().info.ops
    workload, scheduled = (
        annotate_workload(module, task().info) for module in (right.workload, right.scheduled)
    )
    assert findings(inspector, replace(right, workload=workload)) == [Finding.RIGHT]
    told = replace(right, workload=workload, scheduled=scheduled)
    assert findings(inspector, told) == [Finding.RIGHT]
    assert checker.checks == 1


def test_a_verdict_is_for_one_target(inspector, checker, tmp_path, right):
    inspector.judge([right])
    other = {Facet.TARGET: {**FACTS[Facet.TARGET], "mattr": ["-avx512f"]}}
    Inspector(tmp_path, other, checker, failures(tmp_path)).judge([right])
    assert checker.checks == 2


def test_a_damaged_verdict_is_made_anew(inspector, checker, tmp_path, right):
    inspector.judge([right])
    (kept,) = (tmp_path / "verdicts").iterdir()
    kept.write_text("{")
    assert findings(inspector, right) == [Finding.RIGHT]
    assert checker.checks == 2


def test_a_wrong_schedule_is_put_aside_with_the_means_to_see_it(inspector, checker, said, wrong):
    for _ in range(2):
        (verdict,) = inspector.judge([wrong])
        assert verdict.finding is Finding.WRONG
        assert verdict.reason == "off by up to 1 from the plain loops on random inputs"
    assert checker.checks == 1
    (line,) = said
    assert line.startswith("task a task: the schedule of static on direct is wrong and was put")
    assert line.endswith("reproduce.py shows it")
    record = json.loads((Path(verdict.folder) / "record.json").read_text())
    assert (record["case"], record["difference"], record["seed"]) == ("random", "1", 0)
    assert json.loads(record["schedule"]) == {"template": "wrong", "version": 1, "knobs": {}}
    assert shown(verdict).returncode == 1
    assert (
        shown(verdict).stderr.splitlines()[-1]
        == f"a task, checking static on direct: {verdict.reason}"
    )


@cache
def shown(verdict):
    """Run the script that shows what is wrong."""
    script = Path(verdict.folder) / "reproduce.py"
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("way", ENDS)
def test_a_schedule_that_fails_twice_is_put_aside_and_is_not_called_wrong(
    way, inspector, checker, said, monkeypatch
):
    monkeypatch.setattr(contained, "SECONDS", 1.0 if way == "hang" else 60.0)
    for _ in range(2):
        (verdict,) = inspector.judge([ending(way)])
        assert verdict.finding is Finding.FAILED
        assert verdict.reason.startswith(ENDS[way])
    assert checker.checks == 3, "it twice, and the plain loops once"
    (line,) = said
    assert line.startswith(f"task a task: checking mine on direct failed twice: {ENDS[way]}")
    (row,) = inspector.failures.listed["a task"]
    assert (row.doing, row.how) == ("checking", verdict.reason)
    assert str(verdict.folder).endswith(row.folder), "relative to the tuning records"
    record = json.loads((Path(verdict.folder) / "record.json").read_text())
    if way == "compiler":
        assert any("LLVM ERROR: Cannot select: intrinsic" in line for line in record["log"])
    assert any("in checked" in line for line in record["log"]), "the stack is kept"
    assert shown(verdict).returncode == 1
    assert f"a task, checking mine on direct: {ENDS[way]}" in shown(verdict).stderr


def test_a_failure_that_is_to_end_the_run_does(tmp_path, checker):
    fatal = Inspector(tmp_path, FACTS, checker, failures(tmp_path, fatal=True))
    with pytest.raises(StageError, match=r"checking mine on direct failed twice: .*reproduce\.py"):
        fatal.judge([ending("crash")])


def test_what_fails_once_only_is_right(inspector, checker, monkeypatch, tmp_path, right):
    first = tmp_path / "first"

    def once_bad(piece, conditions):
        if not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return job.do(piece, conditions)

    monkeypatch.setattr(checking, "do", once_bad)
    assert findings(inspector, right) == [Finding.RIGHT]
    assert checker.checks == 2
    assert inspector.failures.listed == {}


def test_a_workload_that_fails_itself_condemns_nothing(inspector, checker, said):
    bad = ending("crash")
    for _ in range(2):
        (verdict,) = inspector.judge([replace(bad, workload=bad.scheduled)])
        assert verdict.finding is Finding.UNCHECKED
        assert verdict.reason == "it failed, as the plain loops do: killed by SIGSEGV"
    assert said == []
    assert checker.checks == 6, "it is tried again the next time"


def test_nothing_is_checked_where_the_target_is_not(tmp_path, right, said):
    elsewhere = TargetError("built for aarch64, this machine is x86_64")
    inspector = Inspector(tmp_path, FACTS, elsewhere, failures(tmp_path, said))
    (verdict,) = inspector.judge([right])
    assert verdict == Verdict(Finding.UNCHECKED, str(elsewhere))
    assert list(tmp_path.iterdir()) == []


def test_what_a_device_has_shown_holds_where_the_target_is_not(inspector, tmp_path, right, said):
    assert findings(inspector, right) == [Finding.RIGHT]
    elsewhere = TargetError("built for aarch64, this machine is x86_64")
    other = Inspector(inspector.folder, FACTS, elsewhere, failures(tmp_path, said))
    assert findings(other, right) == [Finding.RIGHT]


def test_a_check_without_time_for_it_condemns_nothing_and_is_not_made_again(tmp_path, said, right):
    hurried = Counting(CONDITIONS, lambda: 0.001)
    inspector = Inspector(tmp_path, FACTS, hurried, failures(tmp_path, said))
    for _ in range(2):
        (verdict,) = inspector.judge([right])
        assert verdict == Verdict(Finding.UNCHECKED, "there was no time for its check")
        assert not verdict.condemns
    assert hurried.checks == 1
    assert said == []
    assert inspector.recall(right) is None
