"""Divisions by open sizes: few instructions, and right for every size, 0 included."""

import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.codegen.compile_kernels import DYNAMIC, compile_kernel
from autopipe.compiler.target.target import make_host_target


@T.prim_func(s_tir=True)
def columns(x: T.handle, times: T.int64, y: T.handle) -> None:
    """Columns of a picture one after the other, several times, by index arithmetic alone."""
    high, wide = T.int64(), T.int64()
    given = T.match_buffer(x, (high, wide), "int32")
    made = T.match_buffer(y, (times * high * wide,), "int32")
    for i in range(times * high * wide):
        with T.sblock("columns"):
            at = T.axis.spatial(times * high * wide, i)
            made[at] = given[at % high, at // high % wide] + T.Cast("int32", at // (high * wide))


COLUMNS = tvm.IRModule({"main": columns})


def lets(pipeline):
    """Return how many variables the division of a kernel that is ready for LLVM binds."""
    target = make_host_target(1)
    kernels, last, _ = tvm.tirx.get_tir_pipeline(pipeline)
    bound = tvm.tirx.transform.BindTarget(target.with_host(target))(COLUMNS)
    with target:
        text = last()(kernels(bound)).script()
    return len(re.findall(r"\br(?:mod|div)\w*\b", text))


def test_a_division_by_an_dynamic_size_is_no_nest_of_choices():
    assert lets("default") > 10
    assert lets(DYNAMIC) == 0


@pytest.mark.parametrize(("times", "high", "wide"), [(1, 1, 1), (3, 4, 4), (2, 5, 5), (0, 3, 3)])
def test_results_are_what_they_were(times, high, wide):
    x = np.arange(high * wide, dtype="int32").reshape(high, wide)
    found = tvm.runtime.tensor(np.full(times * high * wide, -1, "int32"))
    compile_kernel(COLUMNS, make_host_target(1))["main"](tvm.runtime.tensor(x), times, found)
    expected = [x.T + n for n in range(times)]
    np.testing.assert_array_equal(found.numpy(), np.ravel(expected))
