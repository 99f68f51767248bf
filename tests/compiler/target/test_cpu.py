import platform

import pytest

from autopipe.compiler.target import cpu
from autopipe.errors import TargetError
from autopipe.runtime.features import LINUX_FLAGS

HERE = cpu.find_architecture({})


@pytest.mark.parametrize(
    ("triple", "machine"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64"),
        ("aarch64-linux-gnu", "aarch64"),
        ("arm64-apple-darwin", "aarch64"),
        ("amd64", "x86_64"),
        (None, platform.machine().lower()),
    ],
)
def test_the_triple_names_the_architecture(triple, machine):
    assert cpu.find_architecture({"mtriple": triple}) == machine


def test_what_this_processor_has_is_what_llvm_finds():
    import tvm

    found = dict(tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")())
    known = {str(name): bool(there) for name, there in found.items() if str(name) in LINUX_FLAGS}
    assert len(known) > 10
    assert {name for name, there in known.items() if there} == cpu.list_host_features() & set(known)


@pytest.mark.parametrize(
    ("target", "needs", "does_not"),
    [
        ({"mcpu": "x86-64-v3"}, {"avx2", "fma"}, {"avx512f"}),
        ({"mcpu": "x86-64-v4"}, {"avx2", "avx512f"}, {"avx512fp16"}),
        ({"mcpu": "x86-64-v4", "mattr": ["-avx512vl"]}, {"avx512f"}, {"avx512vl"}),
        ({"mcpu": "x86-64-v2", "mattr": ["+avx512vnni"]}, {"avx512vnni"}, {"avx512bf16"}),
        ({"mcpu": "cortex-a76", "mtriple": "aarch64-linux-gnu"}, {"neon", "dotprod"}, {"sve"}),
    ],
)
def test_a_target_needs_the_features_of_its_processor(target, needs, does_not):
    found = set(cpu.list_required_features({"kind": "llvm", "num_cores": 2, **target}))
    assert needs <= found
    assert not does_not & found


RAPIDS = {"kind": "llvm", "mcpu": "sapphirerapids", "num_cores": 2}


@pytest.mark.parametrize(
    ("told", "lacks", "vendor", "name"),
    [
        ("rocketlake", {}, "GenuineIntel", "sapphirerapids"),
        ("emeraldrapids", {}, "GenuineIntel", "emeraldrapids"),
        ("rocketlake", {}, "AuthenticAMD", "rocketlake"),
        ("rocketlake", {"avx512fp16"}, "GenuineIntel", "rocketlake"),
        ("generic", {"avx512fp16"}, "GenuineIntel", "icelake-server"),
        ("generic", {"avx512fp16", "avx512vbmi2"}, "GenuineIntel", "cooperlake"),
        ("generic", {"avx2"}, "GenuineIntel", "generic"),
    ],
)
def test_a_hidden_processor_is_named_by_its_features(told, lacks, vendor, name, monkeypatch):
    monkeypatch.setattr(
        cpu, "list_host_features", lambda: set(cpu.list_required_features(RAPIDS)) - set(lacks)
    )
    monkeypatch.setattr(cpu, "_read_cpuinfo", lambda field: {"vendor_id": vendor}[field])
    assert cpu.find_llvm_name(told) == name


@pytest.mark.parametrize("granted", [True, False])
def test_tiles_are_there_where_linux_grants_them(granted, monkeypatch):
    monkeypatch.setattr(cpu, "_read_cpuinfo", lambda _: "avx2 amx_tile amx_int8 amx_bf16")
    monkeypatch.setattr(cpu, "_request_tiles", lambda: granted)
    tiles = {"amx-tile", "amx-int8", "amx-bf16"} if granted else set()
    assert cpu.list_host_features() == {"avx2"} | tiles


def test_a_build_for_this_processor_is_accepted():
    cpu.check_features(HERE, "native", cpu.list_host_features())


def test_what_is_lacking_is_named(monkeypatch):
    monkeypatch.setattr(cpu, "list_host_features", lambda: frozenset({"avx", "avx2"}))
    monkeypatch.setattr(cpu, "read_cpu_model", lambda: "Old CPU")
    with pytest.raises(TargetError) as caught:
        cpu.check_features(HERE, "znver5", ["avx512vl", "avx2", "avx512f"])
    assert str(caught.value) == "built for znver5, but this CPU (Old CPU) has no avx512f, avx512vl"


def test_another_architecture_is_named():
    with pytest.raises(TargetError, match=f"built for riscv64, this machine is {HERE}"):
        cpu.check_features("riscv64", "generic", [])
