import numpy as np
import pytest
import tvm
from tvm import te, tirx

from autopipe.compiler.graph import elementary
from tests.compiler.graphs import TARGET

LOW, HIGH, ZERO = -3.0, 252.0, 3
NUMBERS = np.array(
    [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -2.51, -3.5, 251.49, 251.5, 252.5, 0.49999997, 1e9,
     -1e9, 3e38, -3e38, np.inf, -np.inf, np.nan], "float32",
)  # fmt: skip


def module(low=LOW, high=HIGH, dtype="int32"):
    x = te.placeholder((NUMBERS.size,), "float32", "x")

    def whole(i):
        near = te.max(tirx.nearbyint(x[i]), tirx.const(low, "float32"))
        return te.min(near, tirx.const(high, "float32")).astype(dtype) + tirx.const(ZERO, dtype)

    made = te.compute(x.shape, lambda i: whole(i).astype("uint8"))
    return tvm.IRModule({"main": te.create_prim_func([x, made])})


def bytes_of(made):
    result = tvm.runtime.tensor(np.zeros(NUMBERS.size, "uint8"))
    tvm.tirx.build(made, TARGET)(tvm.runtime.tensor(NUMBERS), result)
    return result.numpy()


def test_numbers_are_rounded_as_before():
    expected = np.clip(np.round(np.nan_to_num(NUMBERS, nan=LOW)), LOW, HIGH) + ZERO
    np.testing.assert_array_equal(
        bytes_of(elementary.expand_functions(elementary.mark_inexact(module()))), expected
    )
    np.testing.assert_array_equal(bytes_of(module()), expected)


def test_nothing_is_rounded_and_then_converted():
    text = elementary.expand_functions(elementary.mark_inexact(module())).script()
    assert "nearbyint" not in text
    assert "reinterpret" in text
    assert 'Cast("int32"' not in text


@pytest.mark.parametrize("given", [{"low": -2.5}, {"high": 3e9}, {"dtype": "int64"}])
def test_other_bounds_and_types_are_left(given):
    assert (
        "reinterpret"
        not in elementary.expand_functions(elementary.mark_inexact(module(**given))).script()
    )
