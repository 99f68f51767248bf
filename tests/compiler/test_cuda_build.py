"""Builds for GPUs, made here without one; what runs them is in `tests/system/test_gpu.py`."""

import numpy as np
import pytest

from autopipe.artifacts.library import BuiltLibrary
from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.graph import elementary
from autopipe.compiler.library import build, cuda_runtime, nvcc, runtime
from autopipe.errors import SetupError, StageError
from autopipe.schedules.engines import default
from tests.compiler import graphs
from tests.compiler.cuda_graphs import CONDITIONS, TARGET, needs_nvcc
from tests.support import small_build


@pytest.fixture(scope="module")
def lowered():
    optimized = lowering.optimize(graphs.convolution(), 1, graphs.NHWC, TARGET, print)
    return lowering.lower(optimized.module, TARGET)


@pytest.fixture(scope="module")
def scheduled(lowered):
    planned = {
        name: default.plan(tasks.make_workload(function).module, CONDITIONS)
        for name, function in module_io.list_prim_funcs(lowered)
    }
    return {name: each.module for name, each in planned.items() if each}


@needs_nvcc
def test_the_library_is_the_same_every_time_and_holds_every_kernel(
    tmp_path, monkeypatch, lowered, scheduled
):
    why = "a GPU has instructions for elementary functions"
    monkeypatch.setattr(elementary, "expand_functions", lambda _: pytest.fail(why))
    paths = [tmp_path / "a.so", tmp_path / "b.so"]
    for path in paths:
        build.export(build.build_library(lowered, scheduled, TARGET), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    text = first.decode("utf-8", errors="ignore").encode("latin-1", errors="ignore")
    assert len(scheduled) >= 4
    assert all(f"{name}_kernel".encode() in text for name in scheduled)
    assert b"__global__" not in text, "it holds machine code, not CUDA C++"


def test_loops_outside_of_threads_end_the_build(lowered, scheduled):
    name = min(scheduled)
    rest = {each: module for each, module in scheduled.items() if each != name}
    with pytest.raises(StageError, match=f"^{name} has no schedule for cuda, .* name `default`"):
        build.build_library(lowered, rest, TARGET)


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch, lowered, scheduled):
    monkeypatch.setattr(nvcc, "nvcc", lambda: None)
    with pytest.raises(SetupError, match="compiling for CUDA takes nvcc"):
        build.build_library(lowered, scheduled, TARGET)


@needs_nvcc
def test_what_the_compiler_refuses_ends_the_build(monkeypatch, lowered, scheduled):
    monkeypatch.setattr(nvcc, "nvcc", lambda: "/bin/false")
    with pytest.raises(StageError, match="nvcc cannot compile the kernels: no reason given"):
        build.build_library(lowered, scheduled, TARGET)


def test_what_the_gpu_needs_and_is_not_there_is_said(monkeypatch, library):
    monkeypatch.setattr(cuda_runtime, "runtime_library", lambda: "libcudart.so.none")
    cuda_runtime.load.cache_clear()
    signature = BuiltLibrary.read(library).signature.model_copy(update={"device": "cuda"})
    with pytest.raises(SetupError, match=r"CUDA cannot be loaded: libcudart.so.none: .*driver"):
        runtime.load_model(library, signature)


def test_inputs_go_to_the_device_and_outputs_come_back(monkeypatch, library):
    """With the processor in the place of the GPU: it copies as well."""
    processor = 1
    monkeypatch.setattr(cuda_runtime, "NUMBER", processor)
    monkeypatch.setattr(cuda_runtime, "load", lambda: None)
    signature = BuiltLibrary.read(library).signature.model_copy(update={"device": "cuda"})
    model = runtime.load_model(library, signature)
    generator = np.random.default_rng(0)
    for _ in range(2):
        x = generator.standard_normal((4, 8)).astype("float32")
        ids = generator.integers(0, 5, 4)
        scores, best = small_build.expected(x, ids)
        outputs = model({"data/x": x, "ids": ids})
        np.testing.assert_allclose(outputs["scores"], scores, rtol=1e-5)
        np.testing.assert_array_equal(outputs["best"], best)
