"""Numbers of one element become part of the code, but for zeros that TVM would fold away."""

import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.compiler.graph.scalars import plain_numbers

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
    executable = tvm.compile(plain_numbers(builder.get()), target)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(X)).numpy()


@pytest.mark.parametrize("shape", [(), (1,)])
def test_zeros_are_added_and_multiplied_with(shape):
    total, product = computed(relax.op.add, shape), computed(relax.op.multiply, shape)
    np.testing.assert_array_equal(total, X + np.float32(0))
    np.testing.assert_array_equal(np.signbit(total[:2]), [False, False])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(product, X * np.float32(0))
