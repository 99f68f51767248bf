"""Verdicts: made in children, kept, and followed by the means to see that they are right."""

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import tvm
from tvm.target.codegen import llvm_get_system_cpu

from autopipe.compiler.library.kernels import threaded
from autopipe.config.tuning import Measure
from autopipe.environment.facet import Facet
from autopipe.errors import StageError, TargetError
from autopipe.measure.local import Local
from autopipe.processes import contained
from autopipe.safety import inspection
from autopipe.safety.inspection import Inspector, nothing
from autopipe.safety.quarantine import Suspect
from autopipe.schedules import templates
from autopipe.schedules.engines import static
from autopipe.schedules.engines.default import plan
from tests.compiler.cuda_graphs import TARGET as GPU
from tests.schedules import wrong_template
from tests.schedules.bad_schedules import ENDS, doubled, spoil
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS, TARGET

FACTS = {Facet.TARGET: {"kind": "llvm", "mcpu": llvm_get_system_cpu(), "num_cores": 2}}


class Counting(Local):
    """Measures, and says how often it was asked to."""

    checks = 0

    def measure(self, candidates, best=float("inf"), *, rivals=True):
        self.checks += len(candidates)
        return super().measure(candidates, best, rivals=rivals)


@pytest.fixture
def measurer():
    return Counting(TARGET, 2, Measure(build_timeout=4.0))


@pytest.fixture
def said():
    return []


@pytest.fixture
def inspector(tmp_path, measurer, said):
    return Inspector(tmp_path, FACTS, TARGET, measurer, failures(tmp_path, said))


def suspect(planned, workload):
    return Suspect(
        "a task", "static", planned.implementation, planned.schedule, workload, planned.module
    )


@pytest.fixture
def right():
    workload = doubled()
    return suspect(plan(workload, CONDITIONS), workload)


@pytest.fixture
def wrong(monkeypatch):
    monkeypatch.setattr(templates, "TEMPLATES", (wrong_template,))
    workload = doubled()
    return suspect(static.plan(workload, CONDITIONS), workload)


def ending(way):
    workload = doubled()
    return Suspect("a task", "mine", "direct", "{}", workload, spoil(workload, way))


def test_a_verdict_is_remembered(inspector, measurer, said, right):
    assert [verdict.right for verdict in inspector.judge([right, right])] == [True, True]
    once = measurer.checks
    assert [verdict.right for verdict in inspector.judge([right])] == [True]
    assert (once, measurer.checks, said) == (1, 1, [])


def test_a_verdict_is_for_one_target(inspector, measurer, tmp_path, right):
    inspector.judge([right])
    other = {Facet.TARGET: {**FACTS[Facet.TARGET], "mattr": ["-avx512f"]}}
    Inspector(tmp_path, other, TARGET, measurer, failures(tmp_path)).judge([right])
    assert measurer.checks == 2


def test_a_damaged_verdict_is_made_anew(inspector, measurer, tmp_path, right):
    inspector.judge([right])
    (kept,) = (tmp_path / "verdicts").iterdir()
    kept.write_text("{")
    assert inspector.judge([right])[0].right
    assert measurer.checks == 2


def test_a_wrong_schedule_is_put_aside_with_the_means_to_see_it(inspector, measurer, said, wrong):
    for _ in range(2):
        (verdict,) = inspector.judge([wrong])
        assert verdict.right is False
        assert verdict.reason == "off by up to 1 from the plain loops on random inputs"
    assert measurer.checks == 1
    (line,) = said
    assert line.startswith("task a task: the schedule of static on direct is wrong and was put")
    assert line.endswith("reproduce.py shows it")
    record = json.loads((Path(verdict.folder) / "record.json").read_text())
    assert (record["case"], record["difference"], record["seed"]) == ("random", "1", 0)
    assert record["schedule"] == {"template": "wrong", "version": 1, "knobs": {}}
    assert shown(verdict).returncode == 1
    assert shown(verdict).stderr.splitlines()[-1] == f"a task, static on direct: {verdict.reason}"


@cache
def shown(verdict):
    """Run the script that shows what is wrong."""
    script = Path(verdict.folder) / "reproduce.py"
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("way", ENDS)
def test_a_schedule_that_fails_twice_is_put_aside_and_is_not_called_wrong(
    way, inspector, measurer, said, monkeypatch
):
    monkeypatch.setattr(contained, "SECONDS", 1.0 if way == "hang" else 60.0)
    for _ in range(2):
        (verdict,) = inspector.judge([ending(way)])
        assert (verdict.right, verdict.failed) == (False, True)
        assert verdict.reason.startswith(ENDS[way])
    assert measurer.checks == 2, "it, and the plain loops, once"
    (line,) = said
    assert line.startswith(f"task a task: checking mine on direct failed twice: {ENDS[way]}")
    (row,) = inspector.failures.listed["a task"]
    assert (row["doing"], row["how"]) == ("checking", verdict.reason)
    assert str(verdict.folder).endswith(row["folder"]), "relative to the tuning records"
    record = json.loads((Path(verdict.folder) / "record.json").read_text())
    if way == "compiler":
        assert any("LLVM ERROR: Cannot select: intrinsic" in line for line in record["log"])
    assert any("in checked" in line for line in record["log"]), "the stack is kept"
    assert shown(verdict).returncode == 1
    assert f"a task, checking mine on direct: {ENDS[way]}" in shown(verdict).stderr


def test_a_failure_that_is_to_end_the_run_does(tmp_path, measurer):
    fatal = Inspector(tmp_path, FACTS, TARGET, measurer, failures(tmp_path, fatal=True))
    with pytest.raises(StageError, match=r"checking mine on direct failed twice: .*reproduce\.py"):
        fatal.judge([ending("crash")])


def test_what_fails_once_only_is_right(inspector, monkeypatch, right):
    monkeypatch.setattr(inspection, "_inspect", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    assert inspector.judge([right])[0].right
    assert inspector.failures.listed == {}


def test_a_workload_that_fails_itself_condemns_nothing(inspector, measurer, said):
    bad = ending("crash")
    for _ in range(2):
        (verdict,) = inspector.judge([bad._replace(workload=bad.scheduled)])
        assert verdict.right is None
        assert verdict.reason == "it failed, as the plain loops do: killed by SIGSEGV"
    assert said == []
    assert measurer.checks == 4, "it is tried again the next time"


def test_nothing_is_checked_where_the_target_is_not(tmp_path, right, said):
    elsewhere = TargetError("built for aarch64, this machine is x86_64")
    inspector = Inspector(tmp_path, FACTS, TARGET, elsewhere, failures(tmp_path, said))
    (verdict,) = inspector.judge([right])
    assert (verdict.right, verdict.reason) == (None, str(elsewhere))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", [TARGET, GPU], ids=["processor", "gpu"])
def test_what_is_timed_after_a_check_runs_on_the_target(target):
    module = nothing(target)
    library = tvm.tirx.build(module, target)
    assert len(library.imports) == (target is GPU)
    assert threaded(module, GPU) == (target is GPU)
