"""Loops that are parallel where there is much to do: their bodies are compiled once."""

import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.codegen.share_loop_bodies import share_loop_bodies
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.target.target import make_host_target


@T.prim_func(s_tir=True)
def summed(x: T.handle, y: T.handle) -> None:
    """Add 1 and neighbours in rows, by a buffer for each row that is too large for the stack."""
    n = T.int64()
    given = T.match_buffer(x, (n, 3, 1, 1, 1, 1, 1, 64), "float32")
    made = T.match_buffer(y, (n, 3, 1, 1, 1, 1, 1, 64), "float32")
    sums = T.sblock_alloc_buffer((n, 3, 64), "float32")
    sums_alone = T.sblock_alloc_buffer((n, 3, 64), "float32")
    if n >= T.int64(4):
        for i in T.parallel(n):
            for a, k in T.grid(3, 64):
                with T.sblock("sums"):
                    r, s, t = T.axis.remap("SSS", [i, a, k])
                    sums[r, s, t] = given[r, s, 0, 0, 0, 0, 0, t] + T.float32(1)
            for a, b, c, d, e, f, k in T.grid(3, 1, 1, 1, 1, 1, 64):
                with T.sblock("y"):
                    r, s, u, v, w, p, q, t = T.axis.remap("SSSSSSSS", [i, a, b, c, d, e, f, k])
                    made[r, s, u, v, w, p, q, t] = sums[r, s, t] + sums[r, s, 63 - t]
    else:
        for i in range(n):
            for a, k in T.grid(3, 64):
                with T.sblock("sums"):
                    r, s, t = T.axis.remap("SSS", [i, a, k])
                    sums_alone[r, s, t] = given[r, s, 0, 0, 0, 0, 0, t] + T.float32(1)
            for a, b, c, d, e, f, k in T.grid(3, 1, 1, 1, 1, 1, 64):
                with T.sblock("y"):
                    r, s, u, v, w, p, q, t = T.axis.remap("SSSSSSSS", [i, a, b, c, d, e, f, k])
                    made[r, s, u, v, w, p, q, t] = sums_alone[r, s, t] + sums_alone[r, s, 63 - t]


def make_module(function=summed):
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def test_a_body_that_two_loops_have_is_one_function_with_the_buffers_that_it_alone_uses():
    shared = share_loop_bodies(make_module())
    assert sorted(name for name, _ in list_prim_funcs(shared)) == ["main", "main_body0"]
    text = shared["main"].script()
    assert text.count("main_body0(") == 2
    assert "sums" not in text
    assert shared["main_body0"].script().count("sblock_alloc_buffer") == 1


def test_bodies_that_differ_stay_in_their_loops():
    before, index, after = summed.script().rpartition("T.float32(1.0)")
    other = tvm.script.from_source(f"{before}T.float32(2.0){after}")
    assert index
    assert [name for name, _ in list_prim_funcs(share_loop_bodies(make_module(other)))] == ["main"]


def test_bodies_of_rows_with_few_elements_stay_in_their_loops():
    for elements, functions in ((15, 1), (16, 2)):  # twice three rows: 90 and 96 statements
        text = re.sub(r"\b64\b", str(elements), summed.script())
        rows = tvm.script.from_source(re.sub(r"\b63\b", str(elements - 1), text))
        assert len([*list_prim_funcs(share_loop_bodies(make_module(rows)))]) == functions


def make_bounded(extent):
    """Make loops of a constant extent, so that TVM makes their variables narrower."""
    text = summed.script().replace("T.parallel(n)", f"T.parallel(T.int64({extent}))")
    return tvm.script.from_source(text.replace("range(n)", f"range(T.int64({extent}))"))


def check_rows(function, rows):
    """Compile a kernel that shares a body, and compare its sums of some rows with NumPy's."""
    x = np.random.default_rng(0).random((rows, 3, 1, 1, 1, 1, 1, 64), "float32")
    y = tvm.runtime.tensor(np.zeros_like(x))
    library = compile_kernel(make_module(function), make_host_target(2))
    assert "main_body0" in library.inspect_source()
    library["main"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), (x + 1) + (x + 1)[..., ::-1])


@pytest.mark.parametrize("rows", [7, 1])
def test_a_loop_whose_variable_tvm_makes_narrower_shares_its_body(rows):
    check_rows(make_bounded(rows), rows)


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 9])
def test_shared_bodies_compute_what_loops_do(rows):
    check_rows(summed, rows)


def test_llvm_compiles_a_shared_body_once():
    library = compile_kernel(make_module(), make_host_target(2))
    calls = [line for line in library.inspect_source().splitlines() if "main_body0(" in line]
    assert len([line for line in calls if line.startswith("define")]) == 1
    assert len([line for line in calls if " call " in line]) == 2
