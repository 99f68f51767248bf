import pytest

from autopipe.backends import find_backend
from autopipe.compiler.target import gpu, machine
from autopipe.environment import cuda
from autopipe.environment.cuda import Gpu
from autopipe.errors import TargetError
from tests.support.table import each_row

FACTS = {"kind": "llvm", "mcpu": "x86-64-v2", "mtriple": None, "num_cores": 1}


@each_row(
    "built, here, there",
    [
        ("sm_90", "sm_90", True),
        ("sm_86", "sm_90", True),
        ("sm_90", "sm_86", False),
        ("sm_90", "sm_100", True),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_100f", "sm_103", True),
        ("sm_100f", "sm_120", False),
        ("sm_103f", "sm_100", False),
    ],
)
def test_kernels_run_on_what_they_were_built_for_and_what_follows(built, here, there):
    assert gpu.can_run(built, here) is there


def test_a_target_needs_its_gpu(monkeypatch):
    assert find_backend(FACTS).required_architecture(FACTS) is None
    target = {**FACTS, "kind": "cuda", "arch": "nvidia/nvidia-h100"}
    assert find_backend(target).required_architecture(target) == "sm_90a"
    monkeypatch.setattr(cuda, "look", lambda: Gpu("NVIDIA T4", "sm_75", "13.0"))
    machine.check(FACTS)
    machine.check({**target, "arch": "sm_75"})
    with pytest.raises(TargetError, match=r"built for sm_90a, but this GPU \(NVIDIA T4\) is sm_75"):
        machine.check(target)


def test_without_a_gpu_it_is_said_why(monkeypatch):
    monkeypatch.setattr(cuda, "look", lambda: "there is none")
    with pytest.raises(TargetError, match="built for sm_90, but there is none"):
        gpu.check_arch("sm_90")
