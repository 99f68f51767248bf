"""Weights that a schedule makes much larger are stored as they are, and transformed at load."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T  # noqa: N812 - as TVM's own scripts

from autopipe.artifacts.signature import PREPARE
from autopipe.compiler.codegen.compile_kernels import compile_model
from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.pass_state import LinkState
from autopipe.compiler.passes.prepare_weights import prepare_weights

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})
ROWS = 64


def repeat(times: int) -> tvm.tirx.PrimFunc:
    """Return a kernel that writes a weight several times, each a multiple of the weight."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        w: T.Buffer((ROWS, 256), "float32"),  # type: ignore[valid-type]
        y: T.Buffer((times, ROWS, 256), "float32"),  # type: ignore[valid-type]
    ):
        for i in T.parallel(ROWS):
            for k, j in T.grid(times, 256):
                with T.sblock("repeat"):
                    vk, vi, vj = T.axis.remap("SSS", [k, i, j])
                    y[vk, vi, vj] = w[vi, vj] * T.cast(vk + 1, "float32")

    return kernel.with_attr("tirx.is_scheduled", True)  # noqa: FBT003


def linked(times: int) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Return `main`, which takes a bias and a repeated weight, and the work on weights."""
    packed = relax.TensorType((times, ROWS, 256), "float32")
    bias = relax.TensorType((4,), "float32")
    weight = relax.TensorType((ROWS, 256), "float32")
    main = relax.BlockBuilder()
    params = [relax.Var("x", bias), relax.Var("b", bias), relax.Var("u", packed)]
    with main.function("main", params, attrs={"num_input": 1}):
        main.emit_func_output(relax.Tuple(params[1:]))
    work = relax.BlockBuilder()
    kernel = work.add_func(repeat(times), "repeat_weight_prepack")
    given = relax.Var("model_params", tvm.ir.TupleType([weight, bias]))
    with work.function(TRANSFORM, [given], attrs={"num_input": 0}):
        with work.dataflow():
            stored = work.emit(relax.TupleGetItem(given, 0))
            made = work.emit(relax.call_tir(kernel, (stored,), packed))
            other = work.emit(relax.TupleGetItem(given, 1))
            out = work.emit_output(relax.Tuple([other, made]))
        work.emit_func_output(out)
    return main.get(), work.get()


def prepared(times: int, *, packs_at_load: bool) -> tuple[tvm.IRModule, LinkState]:
    main, packing = linked(times)
    state = LinkState(target=TARGET, scheduled={}, packs_at_load=packs_at_load, packing=packing)
    return prepare_weights(main, state), state


def test_a_weight_that_grows_is_stored_as_it_is_and_transformed_at_load():
    module, state = prepared(4, packs_at_load=True)
    stored = state.packing[TRANSFORM].ret_ty.fields
    assert [tuple(map(int, one.shape.values)) for one in stored] == [(4,), (ROWS, 256)]
    assert [str(var.name_hint) for var in state.packing.get_global_vars()] == [TRANSFORM]
    assert "T.parallel" not in module.script()  # a loader has no pool of threads

    bias = np.arange(4, dtype="float32")
    weight = np.random.default_rng(0).standard_normal((ROWS, 256), "float32")
    machine = relax.VirtualMachine(compile_model(module, TARGET), tvm.cpu())
    same, packed = machine[PREPARE](tvm.runtime.tensor(bias), tvm.runtime.tensor(weight))
    np.testing.assert_array_equal(same.numpy(), bias)
    np.testing.assert_array_equal(packed.numpy(), np.stack([weight * k for k in (1, 2, 3, 4)]))


def test_other_weights_than_those_that_are_stored_are_refused():
    module, _ = prepared(4, packs_at_load=True)
    machine = relax.VirtualMachine(compile_model(module, TARGET), tvm.cpu())
    bias, packed = np.zeros(4, "f"), np.zeros((4, ROWS, 256), "f")
    with pytest.raises((RuntimeError, ValueError, TypeError), match=r"shape|ndim|rank"):
        machine[PREPARE](tvm.runtime.tensor(bias), tvm.runtime.tensor(packed))


@pytest.mark.parametrize(("times", "packs_at_load"), [(1, True), (4, False)])
def test_other_weights_are_packed_by_the_build(times, packs_at_load):
    module, state = prepared(times, packs_at_load=packs_at_load)
    assert next(map(int, state.packing[TRANSFORM].ret_ty.fields[1].shape.values)) == times
    assert [str(var.name_hint) for var in module.get_global_vars()] == ["main", PREPARE]
