import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from autopipe.config.target import Hardware, Target
from autopipe.environment import environment
from autopipe.environment.caches import find_cache_sizes
from autopipe.environment.environment import Host, find_requirement, find_version, resolve_target
from autopipe.environment.facet import Facet
from autopipe.environment.machines import KIB, MACHINES, MIB
from autopipe.environment.toolchain import find_linker
from autopipe.errors import SetupError, TargetError
from autopipe.store.canonical import digest_json
from autopipe.store.store import open_store

STACK = {"llvm": "22", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu", "lacks": ""}


class Examiner:
    """Counts how often TVM is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Mapping[str, str]:
        self.calls += 1
        return STACK


def test_native_becomes_what_this_machine_is() -> None:
    assert resolve_target(Target(), STACK) == {
        "kind": "llvm",
        "mcpu": "znver4",
        "mattr": [],
        "mtriple": "x86_64-linux-gnu",
        "num_cores": len(os.sched_getaffinity(0)),
        "hardware": find_cache_sizes(MACHINES["zen-4"], here=True),
    }


def test_what_is_named_stays() -> None:
    target = Target(
        mcpu="cortex-a76", mattr=("+dotprod",), mtriple="aarch64-linux-gnu", num_cores=4,
        hardware=Hardware(vector_bits=64, l2=256 * KIB),
    )  # fmt: skip
    assert resolve_target(target, STACK) == {
        "kind": "llvm",
        "mcpu": "cortex-a76",
        "mattr": ["+dotprod"],
        "mtriple": "aarch64-linux-gnu",
        "num_cores": 4,
        "hardware": {"l1": 64 * KIB, "l2": 256 * KIB, "l3": 2 * MIB, "vector_bits": 64},
    }


def test_cache_sizes_are_what_the_kernel_says(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "", "?")]
    ):
        entry = tmp_path / f"index{index}"
        entry.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (entry / name).write_text(f"{text}\n")
    known = {"l1": 48 * KIB, "l2": 2 * MIB, "l3": 32 * MIB}
    assert find_cache_sizes(MACHINES["zen-4"], here=True, folder=tmp_path) == known
    assert find_cache_sizes(MACHINES["zen-4"], here=False, folder=tmp_path)["l1"] == 32 * KIB
    assert set(find_cache_sizes(MACHINES["aarch64"], here=True, folder=tmp_path / "none")) == {
        "l1",
        "l2",
        "l3",
    }


@pytest.mark.fault("A12")
def test_native_on_a_foreign_triple_is_refused() -> None:
    with pytest.raises(TargetError, match=r"target\.mcpu: native is this machine, x86_64"):
        resolve_target(Target(mtriple="aarch64-linux-gnu"), STACK)


def test_tvm_is_asked_once_for_an_installation(tmp_path: Path) -> None:
    examine = Examiner()
    for _ in range(2):
        with open_store(tmp_path / "store") as store:
            host = Host(Target(), store, examine)
            for _ in range(2):
                facts = host.facts([Facet.TVM, Facet.TARGET])
            assert facts[Facet.TARGET]["mcpu"] == "znver4"
            assert facts[Facet.TVM]["llvm"] == "22"
            assert facts[Facet.TVM]["tvm"] == find_version("apache-tvm")
    assert examine.calls == 1


def test_another_installation_is_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examine = Examiner()
    with open_store(tmp_path / "store") as store:
        Host(Target(), store, examine).facts([Facet.TVM])
        monkeypatch.setattr(environment, "_installation", lambda: "0" * 64)
        host = Host(Target(), store, examine)
        assert host.known([Facet.TVM]) is None
        host.facts([Facet.TVM])
    assert examine.calls == 2


def test_a_failed_check_is_not_remembered(tmp_path: Path) -> None:
    def refuse() -> Mapping[str, str]:
        raise SetupError("does not fit")

    with open_store(tmp_path / "store") as store:
        for _ in range(2):
            with pytest.raises(SetupError, match="does not fit"):
                Host(Target(), store, refuse).facts([Facet.TARGET])


def test_nobody_is_asked_for_what_needs_no_tvm(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        known = Host(Target(), store, pytest.fail).known(set(Facet) - {Facet.TVM, Facet.TARGET})
    assert known is not None
    assert known[Facet.DEVICE]["cores"] == len(os.sched_getaffinity(0))
    assert str(known[Facet.REFERENCE]["onnx"]).startswith("1.")
    assert len(digest_json({facet.value: dict(facts) for facet, facts in known.items()})) == 64
    name = os.uname().nodename
    assert not [value for value in known[Facet.DEVICE].values() if value == name]


def test_every_facet_has_facts(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        assert set(Host(Target(), store, Examiner()).facts(Facet)) == set(Facet)


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(SetupError, match="no-such is not installed; pip install 'no-such'"):
        find_version("no-such")


def test_requirements_are_those_of_autopipe() -> None:
    assert find_requirement("apache-tvm-ffi") == "apache-tvm-ffi==0.1.14.post1"
    assert find_requirement("apache-tvm") == "apache-tvm==0.27.0.post1"
    assert find_requirement("onnx").startswith("onnx")
    assert "," in find_requirement("onnx")


def test_the_linker_is_the_one_tvm_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_linker() is None
    for name in ("clang", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_linker() == str(tmp_path / "gcc")
    monkeypatch.setenv("CXX", str(tmp_path / "clang"))
    assert find_linker() == str(tmp_path / "clang")


def test_native_goes_without_what_a_virtual_machine_hides() -> None:
    stack = {**STACK, "lacks": "avx512bf16 gfni"}
    assert resolve_target(Target(mattr=("+fma",)), stack)["mattr"] == [
        "-avx512bf16",
        "-gfni",
        "+fma",
    ]
    assert resolve_target(Target(mcpu="znver4"), stack)["mattr"] == []
