"""Kernels that round to bfloat16 inside, against numpy with ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, topi

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from tests.compiler.graphs import TARGET

SHORT = "bfloat16"
ODD = [0.0, -0.0, 1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-9, -3.3, 3.4e38, 1e-40, np.inf, -np.inf,
       np.nan, 65280.0, 1e-3, 7.0, -1e-38]  # fmt: skip
"""Halfway between two, to both sides of an even one; what rounds to infinity; denormal; none."""


def ran(inputs, result, *arrays):
    module = tvm.IRModule({"main": te.create_prim_func([*inputs, result])})
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    out = tvm.runtime.empty([int(extent) for extent in result.shape], str(result.dtype))
    compile_kernel(module, TARGET)["main"](*tensors, out)
    return out.numpy()


def padded(x):
    return topi.cast(topi.nn.pad(topi.cast(x, SHORT), (1,), (1,)), "float32")


def doubled(x):
    short = topi.cast(x, SHORT)
    return topi.cast(topi.add(short, short), "float32")


def short(array):
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(ml_dtypes.bfloat16).astype("f")


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda x: topi.cast(topi.cast(x, SHORT), "float32"), short),
        (lambda x: topi.nn.relu(topi.cast(topi.cast(x * 3.0, SHORT), "float32")),
         lambda x: np.maximum(short(x * np.float32(3)), 0)),
        (padded, lambda x: np.pad(short(x), 1)),
        (doubled, lambda x: short(2 * short(x))),
    ],
    ids=["rounded", "between", "padded", "summed"],
)  # fmt: skip
def test_what_is_rounded_inside_a_kernel_is_rounded(compute, expected):
    x = te.placeholder((len(ODD),), "float32", "x")
    values = np.array(ODD, "f")
    with np.errstate(all="ignore"):
        found, wanted = ran([x], compute(x), values), expected(values)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(found[numbers], wanted[numbers])


def test_a_result_of_bfloat16_is_rounded_too():
    x = te.placeholder((len(ODD),), "float32", "x")
    found = ran([x], topi.cast(x, SHORT), np.array(ODD, "f"))
    np.testing.assert_array_equal(found.astype("f"), short(ODD))
