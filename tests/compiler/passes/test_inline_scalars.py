"""Numbers of one element become part of the code, but for zeros that TVM would fold away."""

import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.compiler.passes.inline_scalars import inline_scalars

X = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, -2.5], np.float32)


def computed(op, shape):
    """The result of an operator on X and a zero of a shape."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit(op(x, relax.const(np.zeros(shape, np.float32))))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    target = tvm.target.Target({"kind": "llvm"})
    executable = tvm.compile(inline_scalars(builder.get()), target)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(X)).numpy()


@pytest.mark.parametrize("shape", [(), (1,)])
def test_zeros_are_added_and_multiplied_with(shape):
    total, product = computed(relax.op.add, shape), computed(relax.op.multiply, shape)
    np.testing.assert_array_equal(total, X + np.float32(0))
    np.testing.assert_array_equal(np.signbit(total[:2]), [False, False])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(product, X * np.float32(0))


@pytest.mark.parametrize("x", [*X, np.inf])
def test_a_scalar_is_multiplied_with_zero(x):
    builder, given = relax.BlockBuilder(), relax.Var("x", relax.TensorType((), "float32"))
    with builder.function("main", [given]):
        builder.emit_func_output(builder.emit(relax.op.multiply(relax.const(-0.0), given)))
    executable = tvm.compile(inline_scalars(builder.get()), tvm.target.Target({"kind": "llvm"}))
    product = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(np.float32(x)))
    with np.errstate(invalid="ignore"):
        expected = np.float32(x) * np.float32(-0.0)
    np.testing.assert_array_equal(product.numpy(), expected)
    assert np.isnan(expected) or np.signbit(product.numpy()) == np.signbit(expected)
