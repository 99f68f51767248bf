"""Verdicts: made in children, kept, and followed by the means to see that they are right."""

import json
import subprocess
import sys

import pytest
import tvm
from tvm import te
from tvm.target.codegen import llvm_get_system_cpu

from autopipe.compiler.kernels import threaded
from autopipe.errors import TargetError
from autopipe.measure.local import Local
from autopipe.pipeline.stage import Facet
from autopipe.schedules import static, templates
from autopipe.schedules.default import plan
from autopipe.schedules.inspection import _LIMITS, Inspector, nothing
from autopipe.schedules.quarantine import Suspect
from tests.compiler.cuda_graphs import TARGET as GPU
from tests.schedules import wrong_template
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
    return Counting(TARGET, 2, _LIMITS)


@pytest.fixture
def said():
    return []


@pytest.fixture
def inspector(tmp_path, measurer, said):
    return Inspector(tmp_path, FACTS, TARGET, measurer, said.append)


def doubled():
    x = te.placeholder((4, 32), "float32")
    function = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2.0)])
    return tvm.IRModule({"main": function})


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


def crashing():
    workload = doubled()
    function = tvm.script.from_source("""
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 32), "float32"), y: T.Buffer((4, 32), "float32")):
    T.func_attr({"global_symbol": "main"})
    for i in T.serial(T.int64(1 << 20)):
        y[0, i * T.int64(100000)] = x[0, 0]
""")
    return Suspect("a task", "mine", "direct", "{}", workload, tvm.IRModule({"main": function}))


def test_a_verdict_is_remembered(inspector, measurer, said, right):
    assert [verdict.right for verdict in inspector.judge([right, right])] == [True, True]
    once = measurer.checks
    assert [verdict.right for verdict in inspector.judge([right])] == [True]
    assert (once, measurer.checks, said) == (1, 1, [])


def test_a_verdict_is_for_one_target(inspector, measurer, tmp_path, right):
    inspector.judge([right])
    other = {Facet.TARGET: {**FACTS[Facet.TARGET], "mattr": ["-avx512f"]}}
    Inspector(tmp_path, other, TARGET, measurer, print).judge([right])
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
    record = json.loads((tvm_folder(verdict) / "record.json").read_text())
    assert (record["case"], record["difference"], record["seed"]) == ("random", "1", 0)
    assert record["schedule"] == {"template": "wrong", "version": 1, "knobs": {}}
    shown = subprocess.run(
        [sys.executable, tvm_folder(verdict) / "reproduce.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 1
    assert shown.stderr.splitlines()[-1] == f"a task, static on direct: {verdict.reason}"


def tvm_folder(verdict):
    from pathlib import Path

    return Path(verdict.folder)


def test_a_schedule_that_crashes_is_wrong(inspector, said):
    (verdict,) = inspector.judge([crashing()])
    assert verdict.right is False
    assert verdict.reason.startswith("crashed: SIG")
    assert len(said) == 1


def test_a_workload_that_crashes_itself_condemns_nothing(inspector, measurer, said):
    bad = crashing()
    for _ in range(2):
        (verdict,) = inspector.judge([bad._replace(workload=bad.scheduled)])
        assert verdict.right is None
        assert "crashed" in verdict.reason
    assert said == []
    assert measurer.checks == 4, "it is tried again the next time"


def test_nothing_is_checked_where_the_target_is_not(tmp_path, right, said):
    elsewhere = TargetError("built for aarch64, this machine is x86_64")
    inspector = Inspector(tmp_path, FACTS, TARGET, elsewhere, said.append)
    (verdict,) = inspector.judge([right])
    assert (verdict.right, verdict.reason) == (None, str(elsewhere))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", [TARGET, GPU], ids=["processor", "gpu"])
def test_what_is_timed_after_a_check_runs_on_the_target(target):
    module = nothing(target)
    library = tvm.tirx.build(module, target)
    assert len(library.imports) == (target is GPU)
    assert threaded(module, GPU) == (target is GPU)
