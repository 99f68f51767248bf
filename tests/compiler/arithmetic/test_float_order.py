"""Integers in the order of floats."""

import numpy as np
import pytest
import tvm
from tvm import relax, te

from autopipe.compiler.arithmetic.float_order import restore_floats, to_ordered_integers
from autopipe.compiler.codegen.compile_kernels import compile_kernel, compile_model
from autopipe.compiler.passes.legalize import legalize_ops
from autopipe.compiler.target.target import make_host_target

VALUES = [-np.inf, -65504.0, -1.0, -6e-8, -0.0, 0.0, 6e-8, 1.0, 65504.0, np.inf]


def run(result, given, dtype, *, of):
    kernel = compile_kernel(
        tvm.IRModule({"main": te.create_prim_func([of, result])}), make_host_target(1)
    )
    out = tvm.runtime.tensor(np.zeros(given.shape, dtype))
    kernel["main"](tvm.runtime.tensor(given), out)
    return out.numpy()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_order_is_kept_and_nan_has_a_place(dtype):
    given = np.array([*VALUES, np.nan, -np.nan], dtype)
    x = te.placeholder(given.shape, dtype, name="x")
    kind = "int64" if dtype == "float64" else "int32"
    for first in (False, True):
        keys = run(to_ordered_integers(x, nan_first=first), given, kind, of=x)
        numbers, nans = keys[:-2], keys[-2:]
        steps = np.diff(numbers)
        assert (steps >= 0).all()
        assert [VALUES[at] for at in np.flatnonzero(steps == 0)] == [-0.0]
        assert nans[0] == nans[1]
        assert (nans[0] < numbers[0]) if first else (nans[0] > numbers[-1])
    back = te.placeholder(given.shape, kind, name="keys")
    found = run(
        restore_floats(back, dtype), run(to_ordered_integers(x), given, kind, of=x), dtype, of=back
    )
    np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_nan_is_found(name, axis):
    generator = np.random.default_rng(3)
    given = generator.integers(-3, 3, (12, 20)).astype("float32")
    given[generator.random(given.shape) < 0.05] = np.nan
    given[4], given[:, 6] = -np.inf, np.inf
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(given.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(getattr(relax.op, name)(x, axis))
        builder.emit_func_output(found)
    target = make_host_target(1)
    with target:
        module = legalize_ops(builder.get())
    machine = relax.VirtualMachine(compile_model(module, target), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(given)).numpy()
    np.testing.assert_array_equal(result, getattr(np, name)(given, axis))
