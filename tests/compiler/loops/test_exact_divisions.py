"""Indices that wrap, are reversed or divided read what they say, however they are scheduled."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir import Range
from tvm.s_tir import Schedule
from tvm.script import tirx as T  # noqa: N812 - TVM's name for it
from tvm.sym import Analyzer

import autopipe
from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.loops.exact_divisions import protect_divisions, protect_index
from autopipe.compiler.target.target import make_host_target
from tests.compiler.omitted_pass import omit_host_pass

ROWS, COLUMNS = 16, 8
MAPS = {
    "rolled rows": lambda i, j: ((i + 3) % 16, j),
    "rolled rows and columns": lambda i, j: ((i + 3) % 16, (j + 5) % 8),
    "rolled back": lambda i, j: ((i - 1) % 16, (j - 2) % 8),
    "reversed and rolled": lambda i, j: ((4 - i) % 16, (3 - j) % 8),
    "rolled twice": lambda i, j: (((i + 3) % 16 + 1) % 16, j),
    "every third": lambda i, j: ((3 * i + 1) % 16, (3 * j + 2) % 8),
    "pairs, shifted": lambda i, j: ((i + 3) // 2 % 2, (j + 1) // 2),
    "windows, reversed": lambda i, j: ((15 - i) // 2, (7 - j) // 4 + j % 2),
    "both axes in one": lambda i, j: ((i * 8 + j + 5) // 8 % 16, (i * 8 + j + 5) % 8),
    "two offsets of one axis": lambda i, j: ((i + 1) // 2, (i + 3) % 8),
    "falling in steps": lambda i, j: ((3 - 2 * i) % 16, (3 - 2 * j) % 8),
    "blocks": lambda i, j: (i // 4 * 4 + (i + 1) % 4, j),
}


def moved(index):
    """Return a function that reads x [16, 8] by an index map, and what numpy reads."""
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    y = te.compute((ROWS, COLUMNS), lambda i, j: x[index(i, j)], name="y")
    values = np.arange(ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)
    grid = np.meshgrid(np.arange(ROWS), np.arange(COLUMNS), indexing="ij")
    return te.create_prim_func([x, y]), values, values[index(*grid)]


def fused(function):
    """Return the function with its loops as one."""
    sch = Schedule(tvm.IRModule({"main": function}))
    sch.fuse(*sch.get_loops(sch.get_sblock("y")))
    return sch.mod


def run(library, values):
    """Return what a kernel writes."""
    found = tvm.runtime.tensor(np.zeros_like(values))
    library["main"](tvm.runtime.tensor(values), found)
    return found.numpy()


def test_an_offset_of_whole_turns_is_taken_off():
    """What is left is a plain count of loops, as which LLVM makes vectors of it."""
    outer, inner = tirx.Var("v", "int64"), tirx.Var("w", "int64")
    known = Analyzer()
    known.bind(outer, Range.from_min_extent(0, 33))
    known.bind(inner, Range.from_min_extent(0, 16))
    plain, size = outer * 16 + inner, tirx.const(32, "int64")
    far = tirx.Add(tirx.const(64, "int64"), plain)
    for kind, expected in (
        (tirx.FloorMod, tirx.FloorMod(plain, size)),
        (tirx.FloorDiv, tirx.FloorDiv(plain, size) + tirx.const(2, "int64")),
    ):
        found = protect_index(kind(far, size), [outer, inner], known)
        assert tvm_ffi.structural_equal(found, expected)
        near = protect_index(kind(far + 1, size), [outer, inner], known)
        assert not isinstance(near, kind)


@pytest.mark.parametrize("name", MAPS)
def test_each_index_map_reads_what_numpy_reads(name):
    function, values, right = moved(MAPS[name])
    for module in (tvm.IRModule({"main": function}), fused(function)):
        np.testing.assert_array_equal(
            run(compile_kernel(module, make_host_target(1)), values), right
        )
    (found,) = autopipe.auto_schedule(function)(values)
    np.testing.assert_array_equal(found, right)


def test_tvm_alone_reads_elsewhere():
    """Where it does not any more, `exact_divisions` can go."""
    wrong = 0
    for index in MAPS.values():
        function, values, right = moved(index)
        library = tvm.compile(fused(function), make_host_target(1))
        wrong += not np.array_equal(run(library, values), right)
    assert wrong


def test_what_maps_read_rightly_stays_and_what_is_written_out_stays_so():
    plain, _, _ = moved(lambda i, j: ((i * 8 + j) // 8, (i * 8 + j) // 4 % 2 * 4 + j % 4))
    assert protect_divisions(plain).same_as(plain)
    for index in MAPS.values():
        function, _, _ = moved(index)
        once = protect_divisions(function)
        assert protect_divisions(once).same_as(once)


def test_a_tensor_that_is_written_in_a_circle_is_scheduled_right():
    @T.prim_func(s_tir=True)
    def main(given: T.handle, made: T.handle) -> None:
        x = T.match_buffer(given, (48, 32), "float32")
        y = T.match_buffer(made, (48, 32), "float32")
        for i, j in T.grid(48, 32):
            with T.sblock("y"):
                row, column = T.axis.remap("SS", [i, j])
                y[(row + 1) % 48, (column + 3) % 32] = x[row, column] * T.float32(2)

    x = np.random.default_rng(0).random((48, 32), "float32")
    (found,) = autopipe.auto_schedule(main)(x)
    np.testing.assert_array_equal(found, np.roll(2 * x, (1, 3), (0, 1)))


def test_a_product_that_is_rolled_is_scheduled_right():
    a, b = (te.placeholder((64, 64), name=name) for name in "ab")
    k = te.reduce_axis((0, 64))
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    rolled = te.compute((64, 64), lambda i, j: c[(i + 3) % 64, (j + 5) % 64] * 2.0)
    left, right = np.random.default_rng(0).random((2, 64, 64), "float32")
    (found,) = autopipe.auto_schedule([a, b, rolled])(left, right)
    np.testing.assert_allclose(found, 2 * np.roll(left @ right, (-3, -5), (0, 1)), rtol=1e-4)


def test_windows_in_a_circle_are_summed_right():
    x, w = te.placeholder((32, 16), name="x"), te.placeholder((3, 5), name="w")
    u, v = te.reduce_axis((0, 3)), te.reduce_axis((0, 5))
    y = te.compute(
        (32, 16), lambda i, j: te.sum(x[(i + u) % 32, (j + v) % 16] * w[u, v], axis=[u, v])
    )
    values, weights = (np.random.default_rng(0).random(s, "float32") for s in ((32, 16), (3, 5)))
    right = sum(
        np.roll(values, (-a, -b), (0, 1)) * weights[a, b] for a in range(3) for b in range(5)
    )
    library = compile_kernel(
        tvm.IRModule({"main": te.create_prim_func([x, w, y])}), make_host_target(1)
    )
    plain = tvm.runtime.tensor(np.zeros_like(values))
    library["main"](tvm.runtime.tensor(values), tvm.runtime.tensor(weights), plain)
    np.testing.assert_allclose(plain.numpy(), right, rtol=1e-5)
    (found,) = autopipe.auto_schedule([x, w, y])(values, weights)
    np.testing.assert_allclose(found, right, rtol=1e-5)


@pytest.mark.parametrize(
    ("columns", "window", "results"),
    [
        (16, (3, 1, -1), 16),
        (64, (3, 1, -1), 64),
        (32, (7, 5, 0), 32),
        (8, (24, 7, 7), 16),
        (8, (21, 7, -10), 16),
    ],
)
def test_llvm_makes_right_vectors_of_a_window_in_a_circle(columns, window, results, monkeypatch):
    """A window is its steps, how far apart they are, and where the first one is."""
    count, apart, first = window
    omit_host_pass(monkeypatch, "split_at_borders")
    x = te.placeholder((3, columns), name="x")
    u, v = te.reduce_axis((0, 3)), te.reduce_axis((0, count))

    def total(i, j):
        row = te.max(te.min(i + u - 1, 2), 0)
        return te.sum(x[row, (j + v * apart + first) % columns], axis=[u, v])

    y = te.compute((3, results), total)
    values = np.random.default_rng(0).integers(-9, 9, (3, columns)).astype("float32")
    above = np.pad(values, ((1, 1), (0, 0)), "edge")
    rows = np.sum([above[at : at + 3] for at in range(3)], axis=0)
    steps = np.arange(count) * apart + first
    right = rows[:, (np.arange(results)[:, None] + steps) % columns].sum(2)
    library = compile_kernel(
        tvm.IRModule({"main": te.create_prim_func([x, y])}), make_host_target(1)
    )
    found = tvm.runtime.tensor(np.zeros((3, results), "float32"))
    library["main"](tvm.runtime.tensor(values), found)
    np.testing.assert_array_equal(found.numpy(), right)
