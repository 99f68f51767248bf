"""Computes that nobody tuned a template for: odd sizes, guards, several results, own reducers."""

from typing import Any

import pytest
import tvm
from tvm import te, tirx, topi

from autopipe import auto_schedule, hardware, load_scheduled
from autopipe.api.compute import to_declared_module
from autopipe.api.hardware import build_conditions
from autopipe.measure.check import checked

CASES: dict[str, Any] = {}
ZERO = tirx.const(0.0, "float32")


def case(make):
    CASES[make.__name__] = make
    return make


def tensor(*shape, dtype="float32", name="x"):
    return te.placeholder(shape, dtype, name=name)


def steps(count):
    return te.reduce_axis((0, count), name="k")


@case
def product_below_the_diagonal():
    a, b, k = tensor(33, 35, name="a"), tensor(35, 31, name="b"), steps(35)

    def value(i, j):
        return te.sum(tirx.if_then_else(k <= i, a[i, k] * b[k, j], ZERO), axis=k)

    return [a, b, te.compute((33, 31), value)]


@case
def sums_and_sums_of_squares_at_once():
    x, k = tensor(13, 101), steps(101)
    both = te.comm_reducer(
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
        lambda *kinds: tuple(tirx.const(0, kind) for kind in kinds),
    )
    return [x, *te.compute((13,), lambda i: both((x[i, k], x[i, k] * x[i, k]), axis=k))]


@case
def products_of_complex_numbers():
    x, y, k = tensor(11, 37), tensor(11, 37, name="y"), steps(37)
    times = te.comm_reducer(
        lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
        lambda one, other: (tirx.const(1, one), tirx.const(0, other)),
    )
    return [x, y, *te.compute((11,), lambda i: times((x[i, k], y[i, k]), axis=k))]


@case
def the_two_largest():
    x, k = tensor(17, 97), steps(97)
    least = te.min_value("float32")
    two = te.comm_reducer(
        lambda a, b: (
            tirx.max(a[0], b[0]),
            tirx.max(tirx.min(a[0], b[0]), tirx.max(a[1], b[1])),
        ),
        lambda *kinds: tuple(map(te.min_value, kinds)),
    )
    return [x, *te.compute((17,), lambda i: two((x[i, k], least), axis=k))]


@case
def sums_along_antidiagonals():
    x, k = tensor(21, 21), steps(21)

    def value(d):
        inside = tirx.all(d - k >= 0, d - k < 21)
        return te.sum(tirx.if_then_else(inside, x[k, d - k], ZERO), axis=k)

    return [x, te.compute((41,), value)]


@case
def three_in_turn():
    a, b, c = (tensor(101, name=name) for name in "abc")

    def value(i):
        rest = tirx.if_then_else(i % 3 == 1, b[i // 3], c[i // 3])
        return tirx.if_then_else(i % 3 == 0, a[i // 3], rest)

    return [a, b, c, te.compute((303,), value)]


@case
def softmax_of_ragged_rows():
    x, length = tensor(9, 70), tensor(9, dtype="int32", name="length")
    least, k, r = te.min_value("float32"), steps(70), steps(70)
    top = te.compute(
        (9,), lambda i: te.max(tirx.if_then_else(k < length[i], x[i, k], least), axis=k)
    )
    raised = te.compute(
        (9, 70),
        lambda i, j: tirx.if_then_else(j < length[i], tirx.exp(x[i, j] - top[i]), ZERO),
    )
    total = te.compute((9,), lambda i: te.sum(raised[i, r], axis=r))
    return [x, length, te.compute((9, 70), lambda i, j: raised[i, j] / (total[i] + 1e-9))]


@case
def eight_axes():
    x, k = tensor(2, 3, 2, 3, 2, 3, 2, 3), steps(3)
    shape = (3, 2, 3, 2, 3, 2, 2)
    return [
        x, te.compute(shape, lambda b, c, d, e, f, g, a: te.sum(x[a, b, c, d, e, f, g, k], axis=k)),
    ]  # fmt: skip


@case
def gradient_of_a_pool():
    g, a, b = tensor(2, 3, 7, 7), steps(3), te.reduce_axis((0, 3), name="b")

    def value(n, c, h, w):
        i, j = h + 1 - a, w + 1 - b
        inside = tirx.all(i >= 0, j >= 0, i % 2 == 0, j % 2 == 0, i // 2 < 7, j // 2 < 7)
        return te.sum(tirx.if_then_else(inside, g[n, c, i // 2, j // 2], ZERO), axis=[a, b])

    return [g, te.compute((2, 3, 14, 14), value)]


@case
def correlation_around_a_circle():
    x, y, k = tensor(63), tensor(63, name="y"), steps(63)
    return [x, y, te.compute((63,), lambda i: te.sum(x[k] * y[(i + k) % 63], axis=k))]


@case
def steps_between_results_that_are_wanted():
    x = tensor(9, 11, 7)
    y = topi.multiply(x, tirx.const(2.0, "float32"))
    z = topi.add(y, tirx.const(1.0, "float32"))
    return [x, y, z, topi.multiply(y, z)]


@case
def division_where_it_may_be():
    x, y = tensor(5, 37, dtype="int32"), tensor(5, 37, dtype="int32", name="y")

    def value(i, j):
        return tirx.if_then_else(y[i, j] != 0, tirx.floordiv(x[i, j], y[i, j]), 0)

    return [x, y, te.compute((5, 37), value)]


@case
def nothing_at_all():
    x = tensor(0, 5)
    return [x, te.compute((0, 5), lambda i, j: x[i, j] + 1.0)]


@case
def one_of_one():
    x, k = tensor(1, 1, 1, 1), steps(1)
    return [x, te.compute((1, 1, 1), lambda a, b, c: te.sum(x[a, b, c, k], axis=k))]


@case
def rows_that_are_chosen_at_run_time():
    x, start = tensor(40, 40), tensor(2, dtype="int32", name="start")
    first = [tirx.max(0, tirx.min(start[axis], 30)) for axis in (0, 1)]
    return [x, start, te.compute((10, 10), lambda i, j: x[first[0] + i, first[1] + j])]


@pytest.mark.parametrize("name", CASES)
def test_what_a_stranger_declares_is_computed_and_kept(name, tmp_path):
    target = hardware(num_cores=2)
    found = auto_schedule(CASES[name](), target=target)
    where = build_conditions(target, fast_algorithms=True).target
    checked(to_declared_module(CASES[name]()), found.module, where)
    found.save(tmp_path / "kept.json")
    again = load_scheduled(tmp_path / "kept.json", CASES[name]())
    tvm.ir.assert_structural_equal(again.module, found.module)
