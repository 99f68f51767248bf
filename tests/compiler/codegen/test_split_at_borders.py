"""Loops are split at borders, where a clamped, wrapped or guarded index changes its form."""

from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from autopipe.api.compute import to_declared_module
from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.codegen.split_at_borders import split_at_borders
from autopipe.compiler.target.target import make_host_target
from autopipe.schedules.engines import loops
from tests.compiler.omitted_pass import omit_host_pass
from tests.schedules.tasks import CONDITIONS
from tests.support.seeds import fuzz_seeds, split_seeds
from tests.support.table import each_row

SIZE = 64
ZERO = tirx.const(0.0, "float32")
CHOICES = (tirx.Min, tirx.Max, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.FloorMod, tirx.FloorDiv)


def loop(value, extent=SIZE, inside=lambda i, body: body):
    """Return a function that writes a value, made of its input and an index, in a loop."""
    x, y = (tirx.decl_buffer((SIZE,), "float32", name=name) for name in "xy")
    i = tirx.Var("i", "int32")
    store = tirx.BufferStore(y, value(x, i), [i])
    body = tirx.For(i, 0, extent, tirx.ForKind.SERIAL, inside(i, store))
    return tirx.PrimFunc([x, y], body)


def parts(function):
    """Return the first iteration and the end of each loop, and how many choices it has."""
    every: list[Any] = []
    tvm_ffi.structural_walk(split_at_borders(function).body, (tirx.For, every.append), order="pre")
    found = []
    for one in every:
        choices: list[Any] = []
        tvm_ffi.structural_walk(one.body, (CHOICES, choices.append))
        found.append((int(one.min), int(one.min) + int(one.extent), len(choices)))
    return found


def clamp(index):
    return tirx.max(tirx.min(index, SIZE - 1), 0)


def reflect(index):
    inside = tirx.max(index, -index)
    return tirx.min(inside, 2 * (SIZE - 1) - inside)


def wrap(index):
    return tirx.Select(index < SIZE, index, index - SIZE)


@each_row(
    "value, expected",
    [
        (lambda x, i: x[i], [(0, 64, 0)]),
        (lambda x, i: x[clamp(i + 3)], [(0, 61, 0), (61, 64, 2)]),
        (lambda x, i: x[clamp(i - 2)], [(0, 2, 2), (2, 64, 0)]),
        (lambda x, i: x[clamp(i - 1)] + x[clamp(i + 2)], [(0, 1, 4), (1, 62, 0), (62, 64, 4)]),
        (lambda x, i: x[clamp(2 * i - 3)], [(0, 2, 2), (2, 34, 0), (34, 64, 1)]),
        (lambda x, i: x[clamp(20 - i)], [(0, 21, 0), (21, 64, 0)]),
        (lambda x, i: x[wrap(i + 5)], [(0, 59, 0), (59, 64, 1)]),
        (lambda x, i: x[wrap(i + 32)], [(0, 32, 0), (32, 64, 0)]),
        (lambda x, i: x[reflect(i - 3)], [(0, 3, 3), (3, 64, 0)]),
        (lambda x, i: x[tirx.floormod(i + 5, SIZE)], [(0, 59, 0), (59, 64, 1)]),
        (lambda x, i: x[tirx.floormod(i + 32, SIZE)], [(0, 32, 0), (32, 64, 0)]),
        (lambda x, i: x[tirx.floormod(40 - i, SIZE)], [(0, 41, 0), (41, 64, 1)]),
        (lambda x, i: x[tirx.floordiv(i + 2, 40)], [(0, 38, 0), (38, 64, 0)]),
        (lambda x, i: tirx.if_then_else(i < 60, x[i + 4], ZERO), [(0, 60, 0), (60, 64, 1)]),
        (lambda x, i: x[tirx.Select(tirx.all(i > 2, i <= 50), i, 0)],
         [(0, 3, 2), (3, 51, 0), (51, 64, 2)]),
    ],
)  # fmt: skip
def test_a_loop_is_split_where_choices_change(value, expected):
    assert parts(loop(value)) == expected


@each_row(
    "function",
    [
        loop(lambda x, i: x[clamp(i + 3)], extent=15),
        loop(lambda x, i: x[tirx.min(i ^ 1, 60)]),
        loop(lambda x, i: x[tirx.min(tirx.Cast("int32", x[i]), SIZE - 1)]),
        loop(lambda x, i: tirx.max(x[i], ZERO)),
        loop(lambda x, i: x[tirx.floormod(i + 3, 7)]),
    ],
)
def test_what_is_short_or_has_no_borders_stays(function):
    assert split_at_borders(function).same_as(function)


def test_loops_inside_are_between_borders_for_all_their_steps():
    def window(i, store):
        k = tirx.Var("k", "int32")
        value = store.value + store.buffer[i] * 0.5
        x = store.value.source
        step = tirx.BufferStore(store.buffer, value + x[clamp(i + k - 2)], [i])
        return tirx.For(k, 0, 5, tirx.ForKind.SERIAL, step)

    outer = [one for one in parts(loop(lambda x, i: x[i], inside=window)) if one[1] - one[0] != 5]
    assert outer == [(0, 2, 2), (2, 62, 0), (62, 64, 2)]


def test_borders_may_move_with_loops_around():
    x, y = (tirx.decl_buffer((SIZE,), "float32", name=name) for name in "xy")
    part, i = tirx.Var("part", "int32"), tirx.Var("i", "int32")
    at = part * 16 + i
    store = tirx.BufferStore(y, x[clamp(at + 20)], [at])
    inner = tirx.For(i, 0, 16, tirx.ForKind.SERIAL, store)
    function = tirx.PrimFunc([x, y], tirx.For(part, 0, 4, tirx.ForKind.PARALLEL, inner))
    every: list[Any] = []
    tvm_ffi.structural_walk(split_at_borders(function).body, (tirx.For, every.append))
    assert len(every) > 2
    assert_same(function.with_attr("global_symbol", "main"))


def test_a_part_of_a_part_may_have_no_iterations():
    size, count, i = (tirx.Var(name, "int64") for name in ("size", "count", "i"))
    x, y = (tirx.decl_buffer((size,), "float32", name=name) for name in "xy")
    after = x[tirx.min(i + 1, count - 1)]
    difference = tirx.if_then_else(i + 1 < count, after, ZERO) - x[i]
    loop = tirx.For(i, 0, count, tirx.ForKind.SERIAL, tirx.BufferStore(y, difference, [i]))
    body = tirx.stmt_seq(tirx.Bind(count, tirx.max(size, 0)), loop)
    split = split_at_borders(tirx.PrimFunc([x, y], body).with_attr("global_symbol", "main"))
    built = tvm.compile(split, target="llvm")
    for length in (1, 2, 40):
        data, result = np.arange(length, dtype="float32") ** 2, tvm.runtime.empty((length,))
        built(tvm.runtime.tensor(data), result)
        np.testing.assert_array_equal(result.numpy(), np.append(data[1:], 0) - data)


def assert_same(function):
    """Compare a function with itself, compiled without splitting its loops."""
    shapes = [[int(n) for n in buffer.ty.shape] for buffer in function.params]
    generator = np.random.default_rng(0)
    given = [generator.random(shape, "float32") for shape in shapes[:-1]]
    results = []
    for omitted in ((), ("split_at_borders",)):
        with pytest.MonkeyPatch.context() as patched:
            for name in omitted:
                omit_host_pass(patched, name)
            library = compile_kernel(tvm.IRModule({"main": function}), make_host_target(1))
        result = tvm.runtime.tensor(np.zeros(shapes[-1], "float32"))
        library["main"](*map(tvm.runtime.tensor, given), result)
        results.append(result.numpy())
    np.testing.assert_array_equal(*results)  # type: ignore[arg-type]


def random_function(seed):
    """Return a function that reads at random indices, in windows, guarded or not."""
    random = Random(seed)
    rows, columns = random.choice([(1, 40), (5, 17), (3, 64), (20, 33)])
    x = te.placeholder((rows, columns), name="x")
    steps = [te.reduce_axis((0, random.choice((1, 2, 3, 5)))) for _ in range(2)]

    def index(axis, step, size):
        offset = random.randrange(-size, size)
        moved = axis * random.choice((1, 1, 1, 2, -1)) + step * random.choice((0, 1, 2)) + offset
        kind = random.randrange(4)
        if kind == 0:
            return te.max(te.min(moved, size - 1), 0), None
        if kind == 1:
            return (moved + 9 * size) % size, None
        if kind == 2:
            inside = te.max(moved, -moved) % size
            return te.min(inside, 2 * (size - 1) - inside), None
        return moved, tirx.all(moved >= 0, moved < size)

    def value(i, j):
        (row, first), (column, second) = index(i, steps[0], rows), index(j, steps[1], columns)
        guards = [one for one in (first, second) if one is not None]
        read = x[row, column]
        read = tirx.if_then_else(tirx.all(*guards), read, ZERO) if guards else read
        return random.choice((te.sum, te.max))(read, axis=steps)

    module = to_declared_module([x, te.compute((rows, columns), value, name="y")])
    shared = loops.plan_parallel(module, CONDITIONS) if seed % 2 else None
    return (shared.module if shared else module)["main"]


@pytest.mark.parametrize("seed", range(8))
def test_random_functions_compute_the_same(seed):
    assert_same(random_function(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", split_seeds(fuzz_seeds(8, 2000), 50), ids=str)
def test_many_random_functions_compute_the_same(seeds):
    for seed in seeds:
        assert_same(random_function(seed))
