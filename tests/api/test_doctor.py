import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autopipe.api.doctor import Diagnosis, diagnose_machine
from autopipe.config.pipeline import Pipeline
from autopipe.environment.cuda import Gpu
from autopipe.errors import SetupError
from autopipe.pipeline.isolate import Bug, Killed, Zygote

ROOT = Path(__file__).parents[2]


class Broken(Zygote):
    """Answers every call of a TVM check with a failure."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(preload=())
        self._failure = failure

    def call(self, *_: Any) -> Any:
        raise self._failure


@pytest.mark.fault("D19")
@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (Killed("killed by SIGSEGV\n  it printed nothing"), "killed by SIGSEGV"),
        (
            Bug("Traceback\n  File x\nAttributeError: no save_json\n"),
            "AttributeError: no save_json",
        ),
        (SetupError("can not import tvm: No module"), "can not import tvm: No module"),
    ],
)
def test_what_does_not_work_says_what_to_do(failure: Exception, shown: str) -> None:
    findings = {finding.what: finding for finding in diagnose_machine(Broken(failure))}
    assert str(findings["tvm-ffi"]) == (
        f"fail  tvm-ffi       {shown} - "
        "pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1"
    )
    assert findings["cuda"].state == "warn"
    assert findings["extensions"].advice == "repair or uninstall that package"
    assert findings["onnx"].state == "ok", "what needs no TVM is checked all the same"


@pytest.mark.parametrize(
    ("gpu", "compiler", "said"),
    [
        (
            "there is none",
            "nvcc",
            "there is none; nvcc compiles for others (Build 13)",
        ),
        ("there is none", None, "none needed: there is none, nor nvcc"),
        (Gpu("NVIDIA Fake", "sm_90", "13.0"), None, "driver for CUDA 13.0, but no nvcc"),
        (Gpu("NVIDIA Fake", "sm_90", "13.0"), "nvcc", "but TVM does not see it"),
    ],
)
def test_the_row_of_cuda_says_what_there_is(monkeypatch, gpu, compiler, said) -> None:
    from autopipe.compiler import tvm_probe
    from autopipe.compiler.library import cuda_runtime
    from autopipe.environment import cuda

    monkeypatch.setattr(cuda, "look", lambda: gpu)
    monkeypatch.setattr(cuda, "nvcc", lambda: compiler)
    monkeypatch.setattr(cuda, "toolchain", lambda: {"nvcc": compiler and "Build 13"})
    monkeypatch.setattr(cuda_runtime, "load", lambda: None)
    monkeypatch.setattr("tvm.runtime.Device.exist", False)
    try:
        found = tvm_probe.check_cuda({}, lambda _: None)
    except SetupError as error:
        found = str(error)
    assert said in found


def test_a_finding_that_is_fine_gives_no_advice() -> None:
    assert str(Diagnosis("ok", "disk", "9 GiB", "buy one")) == "ok    disk          9 GiB"


def test_a_quota_below_the_cores_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from autopipe.api import doctor

    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    for quota in (None, 4.0):
        monkeypatch.setattr(doctor, "read_cpu_quota", lambda quota=quota: quota)
        assert doctor.diagnose_threads().state == "ok"
    monkeypatch.setattr(doctor, "read_cpu_quota", lambda: 1.5)
    assert str(doctor.diagnose_threads()) == (
        "warn  threads       4 cores, but time for 1.5 only - set target.num_cores to 1"
    )


@pytest.mark.slow
def test_this_machine_is_healthy() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", "doctor"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "tvm and tvm-ffi fit each other" in done.stdout


def test_the_linker_and_the_tracker_of_a_pipeline_are_tried() -> None:
    measure = {"runner": "rpc", "key": "board", "tracker": "127.0.0.1:1"}
    document = {
        "version": 1, "name": "p", "model": {"path": "m.onnx"}, "tuning": {"measure": measure},
        "target": {"mcpu": "cortex-a72", "num_cores": 4, "linker": "nonesuch-gcc"},
    }  # fmt: skip
    pipeline = Pipeline.model_validate(document)
    broken = Broken(SetupError("target.linker: nonesuch-gcc is not on the PATH"))
    findings = {finding.what: finding for finding in diagnose_machine(broken, pipeline)}
    assert "is not on the PATH - name a compiler that links" in str(findings["target"])
    assert findings["devices"].state == "fail"
    assert "no RPC tracker answers at 127.0.0.1:1" in str(findings["devices"])
