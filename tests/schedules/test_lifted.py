"""Functions of a few elements, in steps of their own."""

import pytest
import tvm
from tvm import te, tirx

from autopipe.schedules.lifted import hoist_calls
from tests.schedules.computed import assert_same


def of_columns(value):
    """Return x minus a value of the sums of its columns."""
    x, c = te.placeholder((8, 24), name="x"), te.reduce_axis((0, 8), name="c")
    total = te.compute((24,), lambda p: te.sum(x[c, p], axis=c), name="total")
    y = te.compute((8, 24), lambda i, p: x[i, p] - value(total, i, p), name="y")
    return te.create_prim_func([x, y]).with_attr("global_symbol", "main")


def steps(function):
    return len(function.body.block.body.seq)


def test_a_function_of_columns_is_computed_once_for_each():
    function = of_columns(lambda total, _, p: tirx.exp(-tirx.exp(total[p] / 64)) + total[p])
    made = hoist_calls(function)
    assert steps(made) == steps(function) + 1
    assert_same(tvm.IRModule({"main": function}), tvm.IRModule({"main": made}))


@pytest.mark.parametrize(
    "value",
    [
        lambda total, i, p: tirx.exp(total[p] * i),  # another one for each element
        lambda total, _, p: tirx.if_then_else(p > 0, tirx.exp(total[p - 1]), 0.0),  # not of all
        lambda total, i, _: tirx.exp(total[i]),  # what LLVM takes out of the inner loop
        lambda total, _, p: total[p] / 3.0,
    ],
)
def test_other_values_stay(value):
    function = of_columns(value)
    assert hoist_calls(function).same_as(function)
