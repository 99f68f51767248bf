from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.library import build, runtime
from autopipe.compiler.library.evaluate_weights import evaluate_weights
from autopipe.compiler.walls import elf
from autopipe.errors import StageError
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default, static
from autopipe.schedules.hardware import HardwareParams
from tests.compiler import graphs


def built(module):
    optimized = lowering.optimize(module, 1, graphs.NHWC, graphs.TARGET, print)
    lowered = lowering.lower(optimized.module, graphs.TARGET)
    scheduled = {
        name: default.schedule(tasks.make_workload(function).module, graphs.TARGET)
        for name, function in module_io.list_prim_funcs(lowered)
    }
    return optimized, build.build_library(lowered, scheduled, graphs.TARGET)


def test_the_library_computes_what_the_module_says(tmp_path):
    module = graphs.convolution()
    arrays = graphs.arguments(module)
    optimized, result = built(module)
    build.export(result, tmp_path / "lib.so")
    values = arrays[1:]
    for work in (optimized.transform, result.packing):
        values = evaluate_weights(work, values, graphs.TARGET, lambda m: m)
    packed = {f"w{i}": value for i, value in enumerate(values)}
    module_io.save_weights(packed, tmp_path / "weights.safetensors")
    signature = Signature(
        inputs=(Port(name="x", shape=(1, 3, 10, 10), dtype="float32"),),
        outputs=(Port(name="y", shape=(1, 8, 5, 5), dtype="float32"),),
        weights=tuple(packed),
        threads=2,
    )
    model = runtime.load_model(tmp_path, signature)
    found = model({"x": arrays[0]})["y"]
    np.testing.assert_allclose(found, graphs.expected(module, arrays), rtol=1e-4, atol=1e-5)


def test_arguments_are_compared_where_a_call_begins_and_not_by_each_kernel(tmp_path):
    module = graphs.convolution()
    x, *weights = graphs.arguments(module)
    _, result = built(module)
    build.export(result, tmp_path / "lib.so")
    assert b"Mismatched" not in (tmp_path / "lib.so").read_bytes()
    machine = relax.VirtualMachine(tvm.runtime.load_module(tmp_path / "lib.so"), tvm.cpu())
    given = [tvm.runtime.tensor(array) for array in (x[:, :, 1:], *weights)]
    with pytest.raises(RuntimeError, match=r"param=x.*shape"):
        machine["main"](*given)


def test_a_library_for_dynamic_sizes_has_names_of_functions_and_no_debug_information(tmp_path):
    made = built(graphs.convolution())[1]
    sections = {}
    for stripped in (False, True):
        build.export(replace(made, stripped=stripped), tmp_path / "lib.so")
        read = elf.Elf.read((tmp_path / "lib.so").read_bytes())
        sections[stripped] = {section.name for section in read.sections}
    lost = sections[False] - sections[True]
    assert ".symtab" in sections[True]
    assert lost
    assert all(name.startswith(".debug") for name in lost)


def test_a_copy_that_changes_a_shape_alone_is_a_view_however_it_was_scheduled(tmp_path):
    x = relax.Var("x", relax.TensorType((128, 64), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            halves = builder.emit(relax.op.reshape(relax.op.nn.softmax(x), (256, 32)))
            out = builder.emit_output(relax.op.nn.softmax(halves))
        builder.emit_func_output(out)
    module = tvm.IRModule({"main": builder.get()["main"].with_attr("num_input", 1)})
    lowered = lowering.lower(module, graphs.TARGET)
    workloads = {
        name: tasks.make_workload(function).module
        for name, function in module_io.list_prim_funcs(lowered)
    }
    (copy,) = (name for name in workloads if "reshape" in name)
    target = Conditions(target=graphs.TARGET, hardware=HardwareParams.of(graphs.TARGET))
    scheduled = {
        name: next(static.list_plans(one, target)).module for name, one in workloads.items()
    }
    build.export(build.build_library(lowered, scheduled, graphs.TARGET), tmp_path / "lib.so")
    assert copy.encode() not in (tmp_path / "lib.so").read_bytes()


def test_sort_and_scan_are_built_as_calls_of_the_runtime(tmp_path):
    x = relax.Var("x", relax.TensorType((3, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = builder.emit(relax.op.cumsum(x, axis=1))
            out = builder.emit_output(relax.op.topk(sums, k=2, ret_type="values"))
        builder.emit_func_output(out)
    module = builder.get()
    build.export(built(module)[1], tmp_path / "lib.so")
    (arrays,) = graphs.arguments(module)
    machine = relax.VirtualMachine(tvm.runtime.load_module(tmp_path / "lib.so"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(arrays)).numpy()
    expected = -np.sort(-arrays.cumsum(axis=1), axis=1)[:, :2]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_same_module_gives_the_same_bytes(tmp_path):
    for name in ("a.so", "b.so"):
        build.export(built(graphs.convolution())[1], tmp_path / name)
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


def test_a_linker_that_fails_is_a_failed_stage(tmp_path, monkeypatch):
    linker = tmp_path / "broken"
    linker.write_text("#!/bin/sh\necho 'ld: error adding symbols: wrong format' >&2\nexit 1\n")
    linker.chmod(0o700)
    monkeypatch.setenv("CXX", str(linker))
    with pytest.raises(StageError, match="linking failed: ld: error adding symbols: wrong format;"):
        build.export(built(graphs.convolution())[1], tmp_path / "lib.so")


def test_weights_keep_their_shape_on_disk(tmp_path):
    arrays = {"scalar": np.full((), 3.5, "float32"), "turned": np.ones((2, 3), "float32").T}
    module_io.save_weights(arrays, tmp_path / "w.safetensors")
    loaded = module_io.load_weights(tmp_path / "w.safetensors")
    assert {name: array.shape for name, array in loaded.items()} == {"scalar": (), "turned": (3, 2)}
