"""Minima and maxima return NaN where an operand is NaN; places in tensors stay places."""

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.arithmetic.extremes import begin_with_infinity
from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.codegen.propagate_nan import propagate_nan
from autopipe.compiler.target.target import make_host_target
from tests.support.table import each_row

ROWS, COLUMNS = 4, 16


def placeholder(name, dtype):
    return te.placeholder((ROWS, COLUMNS), dtype, name=name)


def compiled(result, *operands, vectors=False):
    """Compile an expression of tensors; with vectors along the columns."""
    module = tvm.IRModule({"main": te.create_prim_func([*operands, result])})
    if vectors:
        schedule = tvm.s_tir.Schedule(module)
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
        schedule.vectorize(schedule.get_loops(block)[1])
        module = schedule.mod
    return compile_kernel(module, make_host_target(1))["main"]


def run(kernel, shape, dtype, *arrays):
    out = tvm.runtime.tensor(np.zeros(shape, dtype))
    kernel(*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


def with_nan(seed, dtype="float32"):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((ROWS, COLUMNS)).astype(dtype)
    x[generator.random(x.shape) < 0.2] = np.nan
    x[0, :4] = np.inf, -np.inf, 0.0, -0.0
    return x


def bounded(x):
    return lambda i, j: te.min(te.max(x[i, j], tirx.const(-0.5, x.dtype)), tirx.const(1, x.dtype))


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_is_an_operand_that_wins(dtype, vectors):
    x, y = placeholder("x", dtype), placeholder("y", dtype)
    one, other = with_nan(1, dtype), with_nan(2, dtype)
    zero = tirx.const(0, dtype)
    cases = [
        ((x,), lambda i, j: te.max(x[i, j], zero), np.maximum(one, 0)),
        ((x,), lambda i, j: te.max(zero, x[i, j]), np.maximum(one, 0)),
        ((x,), bounded(x), np.clip(one, -0.5, 1)),
        ((x, y), lambda i, j: te.max(x[i, j], y[i, j]), np.maximum(one, other)),
        ((x, y), lambda i, j: te.min(x[i, j], y[i, j]), np.minimum(one, other)),
    ]
    for operands, at, expected in cases:
        kernel = compiled(te.compute((ROWS, COLUMNS), at), *operands, vectors=vectors)
        given = (one, other)[: len(operands)]
        found = run(kernel, (ROWS, COLUMNS), dtype, *given)
        np.testing.assert_array_equal(found, expected)


@each_row("find, of", [(te.max, np.max), (te.min, np.min)])
def test_an_accumulator_keeps_nan(find, of):
    x = placeholder("x", "float32")
    k = te.reduce_axis((0, COLUMNS), "k")
    kernel = compiled(te.compute((ROWS,), lambda i: find(x[i, k], axis=k)), x)
    for place in range(COLUMNS):
        given = np.random.default_rng(place).standard_normal((ROWS, COLUMNS)).astype("float32")
        given[1, place] = np.nan
        np.testing.assert_array_equal(run(kernel, (ROWS,), "float32", given), of(given, axis=1))


def pooled(kind, dtype, taps, target=None):
    """Compile a pool along rows whose taps are unrolled, in vectors along the columns."""
    x = te.placeholder((taps, 2 * COLUMNS), dtype, name="x")
    k = te.reduce_axis((0, taps), "k")
    result = te.compute((2 * COLUMNS,), lambda j: kind(x[k, j], axis=k))
    function = begin_with_infinity(te.create_prim_func([x, result]))
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    copy = schedule.cache_write(block, 0, "local")
    vectors, vector = schedule.split(schedule.get_loops(copy)[0], [None, COLUMNS])
    schedule.vectorize(vector)
    schedule.unroll(vectors)
    column, tap = schedule.get_loops(block)
    vectors, vector = schedule.split(column, [None, COLUMNS])
    schedule.reorder(tap, vectors, vector)
    for loop in (tap, vectors):
        schedule.unroll(loop)
    schedule.vectorize(vector)
    schedule.decompose_reduction(block, tap)
    return compile_kernel(schedule.mod, target or make_host_target(1))


@pytest.mark.parametrize("taps", [3, 4, 9])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@each_row("kind, of", [(te.max, np.max), (te.min, np.min)])
def test_a_chain_keeps_nan_of_any_link(kind, of, dtype, taps):
    kernel = pooled(kind, dtype, taps)["main"]
    for place in range(taps):
        given = np.random.default_rng(place).standard_normal((taps, 2 * COLUMNS)).astype(dtype)
        given[:, 0], given[:, 1] = np.inf, -np.inf
        given[:, 2], given[:, 3] = np.nan, np.where(np.arange(taps) % 2, 0.0, -0.0)
        given[place, 4:12] = np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.inf, -np.inf
        given[place - 1, 10:12] = np.nan
        np.testing.assert_array_equal(run(kernel, (2 * COLUMNS,), dtype, given), of(given, axis=0))


def test_two_links_of_a_chain_take_one_comparison():
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4"})
    text = pooled(te.max, "float32", 8, target).inspect_source("asm")
    lines = [line.split()[0] for line in text.splitlines() if line.startswith("\tv")]
    vectors = lines.count("vmaxps") // 8
    assert vectors >= 2
    assert 0 < len([line for line in lines if line.startswith("vcmp")]) <= vectors * 4


@T.prim_func(s_tir=True)
def read_between(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (10,), "float32")
    y = T.match_buffer(made, (2,), "float32")
    most = T.alloc_buffer((2,), "float32", scope="local")
    most[0] = x[0]
    most[0] = T.max(most[0], x[1])
    most[0] = T.max(most[0], x[2])
    most[0] = T.max(most[0], x[3])
    most[0] = T.max(most[0], x[4])
    y[1] = most[0]
    most[0] = T.max(most[0], x[5])
    most[0] = T.max(most[0], most[0] + x[6])
    most[0] = T.max(most[0], x[7])
    most[0] = T.max(most[0], x[8])
    most[0] = T.max(most[0], x[9])
    y[0] = most[0]


def test_a_chain_ends_where_its_accumulator_is_read():
    kernel = compile_kernel(tvm.IRModule({"main": read_between}), make_host_target(1))["main"]
    for place in range(10):
        given = np.arange(10, dtype="float32")
        given[place] = np.nan
        first = np.max(given[:5])
        sixth = np.max([first, given[5]])
        expected = np.max([sixth, sixth + given[6], *given[7:]]), first
        np.testing.assert_array_equal(run(kernel, (2,), "float32", given), expected)


@T.prim_func(s_tir=True)
def both(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (8,), "float32")
    y = T.match_buffer(made, (2,), "float32")
    one = T.alloc_buffer((2,), "float32", scope="local")
    one[0] = T.float32(0)
    one[1] = T.float32(0)
    one[0] = T.max(one[0], x[0])
    one[0] = T.min(one[0], x[1])
    one[0] = T.max(one[0], x[2])
    one[1] = T.max(one[1], x[7])
    one[0] = T.min(one[0], x[3])
    one[0] = T.max(one[0], x[4])
    one[0] = T.min(one[0], x[5])
    one[0] = T.max(one[0], x[6])
    one[0] = T.min(one[0], x[7])
    y[0] = one[0]
    y[1] = one[1]


def test_maxima_and_minima_of_one_number_are_two_chains():
    kernel = compile_kernel(tvm.IRModule({"main": both}), make_host_target(1))["main"]
    for place in range(9):
        given = np.random.default_rng(place).standard_normal(9).astype("float32")
        given[place] = np.nan
        one = np.float32(0)
        for at in range(0, 8, 2):
            one = np.minimum(np.maximum(one, given[at]), given[at + 1])
        expected = one, np.maximum(0, given[7])
        np.testing.assert_array_equal(run(kernel, (2,), "float32", given[:8]), expected)


def test_a_place_of_nan_is_a_place():
    """A value that is NaN reads the place it is bounded to, and is NaN all the same."""
    x, table = placeholder("x", "float32"), te.placeholder((3,), "float32", name="table")
    zero, two = (tirx.const(number, "float32") for number in (0, 2))

    def at(i, j):
        place = tirx.floor(te.max(te.min(x[i, j], two), zero)).astype("int32")
        return table[place] + te.max(x[i, j], zero)

    kernel = compiled(te.compute((ROWS, COLUMNS), at), x, table)
    given = np.full((ROWS, COLUMNS), np.nan, np.float32)
    given[0] = np.arange(COLUMNS) - 4
    known = np.array([5, 6, 7], "float32")
    found = run(kernel, (ROWS, COLUMNS), "float32", given, known)
    expected = known[np.clip(given[0], 0, 2).astype(int)] + np.maximum(given[0], 0)
    np.testing.assert_array_equal(found[0], expected)
    assert np.isnan(found[1:]).all()


@T.prim_func(s_tir=True)
def inline(given: T.handle, known: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (1,), "float32")
    table = T.match_buffer(known, (3,), "float32")
    y = T.match_buffer(made, (1,), "float32")
    y[0] = table[T.Cast("int32", T.max(T.min(x[0], T.float32(2)), T.float32(0)))]


@T.prim_func(s_tir=True)
def named(given: T.handle, known: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (1,), "float32")
    table = T.match_buffer(known, (3,), "float32")
    y = T.match_buffer(made, (1,), "float32")
    number: T.let[T.float32] = T.max(T.min(x[0], T.float32(2)), T.float32(0))
    place: T.let[T.int32] = T.Cast("int32", T.floor(number))
    y[0] = table[place]


@T.prim_func(s_tir=True)
def through_memory(given: T.handle, known: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (1,), "float32")
    table = T.match_buffer(known, (3,), "float32")
    y = T.match_buffer(made, (1,), "float32")
    number = T.alloc_buffer((1,), "float32", scope="local")
    place = T.alloc_buffer((1,), "int32", scope="local")
    number[0] = T.max(T.min(x[0], T.float32(2)), T.float32(0))
    place[0] = T.Cast("int32", T.floor(number[0]))
    y[0] = table[place[0]]


@T.prim_func(s_tir=True)
def stored(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (1,), "float32")
    y = T.match_buffer(made, (1,), "int32")
    y[0] = T.Cast("int32", T.max(T.min(x[0], T.float32(2)), T.float32(0)))


@T.prim_func(s_tir=True)
def by_bits(given: T.handle, made: T.handle) -> None:
    """As `whole.rounded` writes what quantization ends in."""
    x = T.match_buffer(given, (1,), "float32")
    y = T.match_buffer(made, (1,), "int32")
    bounded = T.max(T.min(x[0], T.float32(2)), T.float32(0))
    y[0] = T.reinterpret("int32", bounded + T.float32(12582912)) - 0x4B400000


@each_row("function", [inline, named, through_memory, stored, by_bits])
def test_what_an_integer_is_computed_from_stays_bounded(function):
    assert propagate_nan(function).script() == function.script()


def test_integers_and_bounds_of_integers_are_left_alone():
    x = te.placeholder((ROWS, COLUMNS), "int32", name="x")
    result = te.compute((ROWS, COLUMNS), lambda i, j: te.max(x[i, j], 0))
    function = te.create_prim_func([x, result])
    assert propagate_nan(function).same_as(function)


def test_a_bound_takes_one_instruction():
    x = placeholder("x", "float32")
    module = tvm.IRModule({"main": te.create_prim_func([x, te.compute(x.shape, bounded(x))])})
    schedule = tvm.s_tir.Schedule(module)
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.vectorize(schedule.get_loops(block)[1])
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    text = compile_kernel(schedule.mod, target).inspect_source("asm")
    lines = [line.split()[0] for line in text.splitlines() if line.startswith("\tv")]
    assert lines.count("vmaxps") == lines.count("vminps") > 0
    assert not [line for line in lines if line.startswith(("vcmp", "vblend"))]


def test_a_chain_is_no_longer_than_its_links():
    """Each operand is computed once, however often it is compared."""
    x = placeholder("x", "float32")
    value = x[0, 0]
    for column in range(1, 8):
        value = te.max(value, x[0, column])
    result = te.compute((1,), lambda _: value)
    function = te.create_prim_func([x, result])
    assert len(propagate_nan(function).script()) < 40 * len(function.script())
