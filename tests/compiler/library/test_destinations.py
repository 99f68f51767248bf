"""Kernels write outputs to memory of the caller, where it fits; elsewhere they are copied there."""

import numpy as np
import pytest
import tvm

from autopipe.artifacts.signature import MAIN_INTO
from autopipe.compiler.library import build, runtime
from autopipe.compiler.library.loaded_model import allocate_aligned
from autopipe.compiler.pass_state import LinkState
from autopipe.compiler.passes.add_destinations import add_destinations
from autopipe.errors import CallLimitError, StageError
from autopipe.verification import contained_build
from tests.compiler import graphs
from tests.support import large_outputs
from tests.support.large_outputs import NAMES, SHAPE, SIGNATURE, X, compute
from tests.support.shared import once

STATE = LinkState(target=graphs.TARGET, scheduled={})


@pytest.fixture
def model(tmp_path_factory):
    return runtime.load_model(
        once(tmp_path_factory, "large", large_outputs.write_library), SIGNATURE
    )


@pytest.fixture
def direct_calls(model, monkeypatch):
    """What kernels wrote to memory of the caller: a list of addresses for each call."""
    calls = []
    write = model._main_into

    def count(*arguments):
        calls.append([tensor.data_ptr() for tensor in arguments[1:]])
        return write(*arguments)

    monkeypatch.setattr(model, "_main_into", count)
    return calls


def make_buffers(fill=np.nan):
    buffers = {port.name: allocate_aligned(port.shape, "float32") for port in SIGNATURE.outputs}
    for buffer in buffers.values():
        buffer[...] = fill
    return buffers


def assert_right(outputs, x=X):
    for name, expected in compute(x).items():
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-6, atol=1e-6, err_msg=name)


def test_kernels_write_to_arrays_for_all_outputs(model, direct_calls, monkeypatch):
    buffers = make_buffers()
    copied = []
    copy = np.copyto

    def count(to, of):
        copied.append(to)
        copy(to, of)

    monkeypatch.setattr(np, "copyto", count)
    returned = model({"x": X}, outputs=buffers)
    assert direct_calls == [[buffer.ctypes.data for buffer in buffers.values()]]
    assert all(returned[name] is buffers[name] for name in NAMES)
    assert [id(to) for to in copied] == [id(buffers["same"]), id(buffers["again"])]
    assert_right(buffers)
    assert_right(model({"x": X}))


def test_other_arrays_are_copied_to(model, direct_calls):
    shifted = make_buffers()
    memory = np.empty(X.nbytes + 4, np.uint8)
    shifted["double"] = memory[4:].view("float32").reshape(SHAPE)
    some = make_buffers()
    del some["rows"]
    assert_right(model({"x": X}, outputs=shifted))
    assert_right(model({"x": X}, outputs=some))
    assert_right(model({"x": X}, outputs=make_buffers(), limit=60))
    shared = make_buffers()
    shared["again"] = shared["sum"]
    assert_right(model({"x": X}, outputs=shared))
    assert direct_calls == []


def test_an_array_may_be_input_and_output(model, direct_calls):
    buffers = make_buffers()
    buffers["double"][...] = X
    assert_right(model({"x": buffers["double"]}, outputs=buffers))
    assert len(direct_calls) == 1


def test_a_call_that_ends_early_leaves_arrays_as_they_were(model):
    buffers = make_buffers(fill=7)
    with pytest.raises(CallLimitError):
        model({"x": X}, outputs=buffers, limit=0)
    assert all((buffer == 7).all() for buffer in buffers.values())


@pytest.mark.parametrize("shape", [(1, 8), (128, 1024)])
def test_small_outputs_and_dynamic_shapes_are_copied(shape):
    rows = tvm.tirx.Var("n", "int64") if shape == SHAPE else None
    module = large_outputs.make_module(shape, rows)
    assert add_destinations(module, STATE) is module


def test_a_model_that_takes_sizes_has_none():
    function = large_outputs.make_module()["main"]
    sizes = tvm.relax.Var("sizes", tvm.relax.ShapeType([tvm.tirx.IntImm("int64", 4)]))
    params = [*function.params, sizes]
    taking = tvm.relax.Function(params, function.body, function.ret_ty, function.is_pure)
    module = tvm.IRModule({"main": taking.with_attr("num_input", 2)})
    assert add_destinations(module, STATE) is module


def test_a_model_that_returns_its_input_has_nothing_to_write():
    x = tvm.relax.Var("x", tvm.relax.TensorType(SHAPE, "float32"))
    builder = tvm.relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    assert add_destinations(builder.get(), STATE) == builder.get()


def test_the_same_module_gives_the_same_bytes(tmp_path):
    for name in ("a.so", "b.so"):
        made = large_outputs.build_module(large_outputs.make_module())
        build.export(made, tmp_path / name)
    data = (tmp_path / "a.so").read_bytes()
    assert data == (tmp_path / "b.so").read_bytes()
    assert MAIN_INTO.encode() in data


def test_a_build_that_writes_something_else_is_wrong(model):
    outputs = model({"x": X})
    contained_build._compare_written(model, {"x": X}, outputs)
    outputs["double"][-1, -1] += 1
    with pytest.raises(StageError, match="'double' is another one where kernels write"):
        contained_build._compare_written(model, {"x": X}, outputs)
