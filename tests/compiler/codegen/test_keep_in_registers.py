"""Sums of a tile are registers: no memory is asked for, whatever their size, and none written."""

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.codegen.compile_kernels import DYNAMIC, STATIC, compile_kernel
from autopipe.compiler.codegen.keep_in_registers import MOST
from autopipe.compiler.target.target import make_host_target

ROWS, STEPS = 3, 40


def sums(columns, scope):
    """Return a module that sums rows of x [ROWS, STEPS, columns] in a buffer of its own."""

    @T.prim_func(s_tir=True)
    def main(given: T.handle, made: T.handle) -> None:
        x = T.match_buffer(given, (ROWS, STEPS, columns), "float32")
        y = T.match_buffer(made, (ROWS, columns), "float32")
        T.func_attr({"tirx.noalias": True})
        for i in T.parallel(ROWS):
            with T.sblock("tile"):
                T.reads(x[0:ROWS, 0:STEPS, 0:columns])
                T.writes(y[0:ROWS, 0:columns])
                total = T.sblock_alloc_buffer((columns,), scope=scope)
                for c in T.vectorized(columns):
                    total[c] = T.float32(0)
                for k in range(STEPS):
                    for c in T.vectorized(columns):
                        total[c] = total[c] + x[i, k, c]
                for c in T.vectorized(columns):
                    y[i, c] = T.max(total[c], T.float32(0))

    return tvm.IRModule({"main": main})


def allocates(module):
    """Tell whether a compiled kernel asks TVM's allocator for memory."""
    return "TVMBackendAllocWorkspace" in compile_kernel(module, make_host_target(1)).inspect_source(
        "ll"
    )


@pytest.mark.parametrize("columns", [32, 512])
def test_sums_are_on_no_heap_and_right(columns):
    module = sums(columns, "local")
    assert not allocates(module)
    x = np.random.default_rng(0).standard_normal((ROWS, STEPS, columns), dtype="float32")
    found = tvm.runtime.tensor(np.full((ROWS, columns), np.nan, "float32"))
    compile_kernel(module, make_host_target(1))["main"](tvm.runtime.tensor(x), found)
    np.testing.assert_allclose(found.numpy(), np.maximum(x.sum(axis=1), 0), rtol=1e-4, atol=1e-5)


def test_what_is_large_or_shared_stays_with_the_allocator():
    assert allocates(sums(2 * MOST, "local"))
    assert allocates(sums(MOST, "global"))


def test_so_it_is_where_sizes_are_open():
    """Both pipelines do it, and TVM's own does not: then this file could go."""
    module = sums(32, "local")
    made = {}
    for name in ("default", STATIC, DYNAMIC):
        kernels, last, _ = tvm.tirx.get_tir_pipeline(name)
        target = make_host_target(1)
        bound = tvm.tirx.transform.BindTarget(target.with_host(target))(module)
        with target:
            made[name] = "AllocWorkspace" in last()(kernels(bound)).script()
    assert made == {"default": True, STATIC: False, DYNAMIC: False}
