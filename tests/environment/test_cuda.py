import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.backends import BACKENDS
from autopipe.config.target import Target
from autopipe.environment import cuda
from autopipe.environment.cuda import Gpu
from autopipe.environment.environment import Host, resolve_target
from autopipe.environment.facet import Facet
from autopipe.errors import TargetError
from autopipe.store.store import open_store

STACK = {"llvm": "22", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu", "lacks": "gfni"}
GPU = Gpu("NVIDIA Fake", "sm_86", "13.0")
DRIVER = r"""
#include <cstdlib>
#include <cstring>
extern "C" {
int cuInit(unsigned) { BODY }
int cuDriverGetVersion(int* v) { *v = 13010; return 0; }
int cuDeviceGetName(char* name, int, int) { std::strcpy(name, "NVIDIA Fake"); return 0; }
int cuDeviceGetAttribute(int* v, int which, int) { *v = which == 75 ? 12 : 1; return 0; }
}
"""


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put a driver in front of the machine's own, whose `cuInit` is the given code."""

    def make(body):
        command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", tmp_path / "libcuda.so.1"]
        subprocess.run(command, input=DRIVER.replace("BODY", body), text=True, check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        cuda.look.cache_clear()
        return cuda.look()

    yield make
    cuda.look.cache_clear()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return 0;", Gpu("NVIDIA Fake", "sm_121", "13.1")),
        ("return 100;", "the NVIDIA driver shows no GPU (cuInit gives 100)"),
        ("std::abort();", "the NVIDIA driver crashed when it was asked"),
    ],
)
def test_the_driver_is_asked_in_a_child(driver, tmp_path, body, found):
    assert driver(body) == found
    assert str(tmp_path) not in Path(f"/proc/{os.getpid()}/maps").read_text()


@pytest.fixture
def gpu(monkeypatch):
    def put(found):
        monkeypatch.setattr(cuda, "look", lambda: found)

    return put


def test_native_is_the_gpu_that_is_there(gpu):
    gpu(GPU)
    for target in (Target(kind="cuda"), Target(kind="cuda", arch="native")):
        facts = resolve_target(target, STACK)
        assert (facts["kind"], facts["arch"]) == ("cuda", "sm_86")
        assert (facts["mcpu"], facts["mattr"]) == ("znver4", ["-gfni"])


def test_what_is_named_needs_no_gpu(gpu):
    gpu("there is none")
    assert resolve_target(Target(kind="cuda", arch="sm_90"), STACK)["arch"] == "sm_90"
    with pytest.raises(TargetError, match=r"target\.arch: there is none; name what to compile for"):
        resolve_target(Target(kind="cuda"), STACK)


def test_facts_of_a_processor_do_not_know_gpus(gpu, tmp_path):
    gpu(GPU)
    with open_store(tmp_path / "store") as store:
        plain = Host(Target(), store, lambda: STACK).facts(Facet)
        facts = Host(Target(kind="cuda"), store, lambda: STACK).facts(Facet)
    assert "arch" not in plain[Facet.TARGET]
    assert set(facts[Facet.DEVICE]) - set(plain[Facet.DEVICE]) == {"gpu", "arch", "driver"}
    assert set(facts[Facet.TOOLCHAIN]) - set(plain[Facet.TOOLCHAIN]) == {"nvcc"}
    assert facts[Facet.DEVICE]["gpu"] == "NVIDIA Fake"
    same = {Facet.TVM, Facet.REFERENCE, Facet.FRONTEND}
    assert all(facts[facet] == plain[facet] for facet in same)


def test_a_machine_without_a_gpu_has_facts_too(gpu):
    gpu("there is none")
    assert cuda.describe_gpu() == {"gpu": None, "driver": None}


@pytest.fixture
def compilers(tmp_path, monkeypatch):
    """Where the wheels and the PATH would have a compiler."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # without wheels that are installed
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    cuda.nvcc.cache_clear()
    yield {"wheel": tmp_path / "nvidia/cu13/bin/nvcc", "path": tmp_path / "path/nvcc"}
    for cached in (cuda.nvcc, cuda.toolchain):
        cached.cache_clear()


@pytest.mark.parametrize("there", [("wheel", "path"), ("wheel",), ("path",), ()])
def test_the_installed_compiler_comes_before_the_one_on_the_path(compilers, there):
    for name in there:
        compilers[name].parent.mkdir(parents=True)
        compilers[name].write_text(f"#!/bin/sh\necho 13\necho Build {name}\n")
        compilers[name].chmod(0o755)
    assert cuda.nvcc() == (str(compilers[there[0]]) if there else None)
    cuda.toolchain.cache_clear()
    assert cuda.toolchain() == {"nvcc": f"Build {there[0]}" if there else None}


@pytest.mark.parametrize("kind", BACKENDS)
def test_every_backend_states_every_facet(gpu, tmp_path, kind):
    gpu(GPU)
    with open_store(tmp_path / "store") as store:
        facts = Host(Target(kind=kind), store, lambda: STACK).facts(Facet)
    assert facts.keys() == set(Facet)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=str)
def test_a_target_has_an_architecture_where_its_kind_has_the_field(gpu, backend):
    """A lock is refused by the field alone, without asking the machine."""
    gpu(GPU)
    assert (backend.resolve_architecture(None) is not None) is ("arch" in backend.fields)
