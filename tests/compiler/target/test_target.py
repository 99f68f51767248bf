import pytest
import tvm
from tvm.target import codegen

from autopipe.compiler.target.target import backend_of, make_target
from autopipe.config.processors import ARCHITECTURES, PROCESSORS
from autopipe.errors import TargetError
from autopipe.schedules.conditions import Conditions


def facts(**changes):
    return {"kind": "llvm", "mcpu": "x86-64-v2", "mtriple": None, "num_cores": 2, **changes}


def test_the_facts_are_tvms_attributes():
    target = make_target(
        facts(mcpu="cortex-a72", mtriple="aarch64-linux-gnu", mattr=["+dotprod"], num_cores=3)
    )
    assert target.attrs["mcpu"] == "cortex-a72"
    assert target.attrs["mtriple"] == "aarch64-linux-gnu"
    assert list(target.attrs["mattr"]) == ["+dotprod"]
    assert int(target.attrs["num-cores"]) == 3


@pytest.mark.fault("A12")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mcpu": "znver44"}, r"mcpu: LLVM knows no processor 'znver44' .*; did you mean 'znver4'"),
        ({"mcpu": "qqqqqq"}, r"no processor 'qqqqqq' for [\w-]+$"),
        ({"mcpu": "znver4", "mtriple": "aarch64-linux-gnu"}, "'znver4' for aarch64-linux-gnu"),
        ({"mattr": ["+amx-int9"]}, "mattr: LLVM knows no feature 'amx-int9' of x86-64-v2$"),
        ({"mattr": ["-avx51f"], "mcpu": "znver4"}, "no feature .* did you mean '-avx512f'"),
        ({"mtriple": "bogus-linux"}, "mtriple: LLVM knows no processor for 'bogus-linux'"),
    ],
)
def test_what_llvm_does_not_know_is_refused(changes, message):
    with pytest.raises(TargetError, match=message):
        make_target(facts(**changes))


def test_the_list_of_processors_is_that_of_llvm():
    found = set()
    for architecture in ("x86_64", "i686", "aarch64", "arm", "riscv32", "riscv64", "s390x",
                         "powerpc64"):  # fmt: skip
        assert architecture.startswith(ARCHITECTURES)
        target = tvm.target.Target({"kind": "llvm", "mtriple": f"{architecture}-linux-gnu"})
        found |= set(map(str, codegen.llvm_get_cpu_archlist(target)))
    assert found == PROCESSORS


def gpu(arch):
    return make_target(facts(kind="cuda", arch=arch))


def test_a_gpu_has_the_processor_as_its_host():
    target = gpu("sm_90")
    assert not backend_of(target).runs_on_host
    assert backend_of(target.host).runs_on_host
    assert target.host.attrs["mcpu"] == "x86-64-v2"
    assert int(target.host.attrs["num-cores"]) == 2
    assert target.attrs["arch"] == "sm_90"
    assert int(target.attrs["max_shared_memory_per_block"]) == 49152
    assert int(target.attrs["max_threads_per_block"]) == 1024


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("nvidia/nvidia-h100", "sm_90a"),
        ("nvidia/nvidia-a100", "sm_80"),
        ("nvidia/jetson-agx-thor", "sm_110a"),
    ],
)
def test_a_gpu_can_be_named(name, arch):
    target = gpu(name)
    assert target.attrs["arch"] == arch
    assert int(target.attrs["max_shared_memory_per_block"]) == 49152


@pytest.mark.fault("A12")
@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("sm_95", "CUDA 13 does not compile for sm_95, but for sm_75, sm_80"),
        ("nvidia/nvidia-v100", "CUDA 13 does not compile for sm_70"),
        ("nvidia/nvidia-h10", "TVM knows no GPU 'nvidia/nvidia-h10'; did you mean .*-h100'"),
    ],
)
def test_a_gpu_that_nothing_compiles_for_is_refused(arch, message):
    with pytest.raises(TargetError, match=rf"target\.arch: {message}"):
        gpu(arch)


@pytest.mark.fault("A12")
@pytest.mark.parametrize(
    ("mcpu", "stated", "message"),
    [
        ("haswell", {"vector_bits": 512}, "vector_bits: 512 contradicts the target: haswell has"),
        ("haswell", {"registers": 32}, r"registers: 32 contradicts the target: haswell has 16"),
    ],
)
def test_hardware_that_the_processor_lacks_is_refused(mcpu, stated, message):
    target = facts(mcpu=mcpu, hardware=stated)
    with pytest.raises(TargetError, match=message):
        Conditions.of(target, fast_algorithms=True)


def test_stated_hardware_replaces_the_processors_own():
    stated = {"vector_bits": 256, "registers": 16, "l1": 1 << 15, "l2": 1 << 20, "l3": 1 << 24}
    found = Conditions.of(facts(mcpu="znver4", hardware=stated), fast_algorithms=True).hardware
    assert {name: getattr(found, name) for name in stated} == stated
    assert found.lanes(32) == 8
