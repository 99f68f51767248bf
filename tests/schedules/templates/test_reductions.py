"""Reductions of any kind: templates `contraction` and `reduction`."""

import runpy
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from autopipe.api.compute import to_declared_module
from autopipe.schedules.analysis.blocks import is_spatial
from autopipe.schedules.analysis.joining import find_join
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.engines.fallback import choose_fallback
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates import reduction
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.templates.reduction import REDUCTION
from tests.schedules.computed import assert_same, normal
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import tensor
from tests.support.table import each_row

ROOT = Path(__file__).parents[3]
OWN = runpy.run_path(str(ROOT / "benchmarks" / "own_computes.py"))["OWN"]
SMALL = HardwareParams(vector_bits=128, registers=16, cores=2)


def few(module):
    """Return whole numbers from 0 to 3, so that many are equal."""
    random = np.random.default_rng(1)
    return [
        tvm.runtime.tensor(random.integers(0, 4, tuple(map(int, p.shape))).astype(str(p.dtype)))
        for p in module["main"].params
    ]


def either(one, other):
    return tirx.Or(one, other)


def reachable(n=13):
    left, right, k = _tensors_of_truths(n)
    some = te.comm_reducer(either, lambda dtype: tirx.const(0, dtype))
    reached = te.compute((n, n), lambda i, j: some(tirx.And(left[i, k], right[k, j]), axis=k))
    return [left, right, reached]


def _tensors_of_truths(n):
    return tensor(n, n, dtype="bool"), tensor(n, n, dtype="bool"), te.reduce_axis((0, n))


def data_gradient():
    above, weight = tensor(1, 7, 7, 6), tensor(3, 3, 10, 6)
    r, s, k = (te.reduce_axis((0, n)) for n in (3, 3, 6))

    def total(n, i, j, c):
        y, x = i - r + 1, j - s + 1
        inside = tirx.all(y >= 0, y < 7, x >= 0, x < 7)
        value = above[n, y, x, k] * weight[r, s, c, k]
        return te.sum(tirx.if_then_else(inside, value, 0.0), axis=[r, s, k])

    return [above, weight, te.compute((1, 7, 7, 10), total)]


def argmax(axis):
    x = tensor(7, 45)
    return [x, topi.argmax(x, axis=axis)]


def _at(k, x, i, wide):
    return (k.var.astype("int64") if wide else k.var), x[i, k]


def first_of_wide(length=45, *, summed=False, down=False):
    """Return an argmax of 64 bits as TVM has it; or the sum of positions of a largest element."""
    x, k = tensor(7, length), te.reduce_axis((0, length))

    def larger(one, other):
        keep = tirx.Or(one[1] > other[1], tirx.And(one[1] == other[1], one[0] < other[0]))
        at = one[0] + other[0] if summed else tirx.Select(keep, one[0], other[0])
        return at, tirx.Select(one[1] > other[1], one[1], other[1])

    first = te.comm_reducer(larger, lambda at, most: (tirx.const(-1, at), tirx.min_value(most)))
    if down:
        x = tensor(length, 7)
        columns = te.compute((7,), lambda i: first((k.var.astype("int64"), x[k, i]), axis=k))
        return [x, columns[0]]
    at, most = te.compute((7,), lambda i: first(_at(k, x, i, wide=True), axis=k))
    return [x, at, most]


def larger(one, other):
    """Return the larger of two places with values, the first place of equal values."""
    keep = tirx.Or(one[1] > other[1], tirx.And(one[1] == other[1], one[0] < other[0]))
    return tirx.Select(keep, one[0], other[0]), tirx.Select(keep, one[1], other[1])


def falling():
    """Return the first of the largest elements, counted from the end."""
    x, k = tensor(7, 45), te.reduce_axis((0, 45))

    first = te.comm_reducer(larger, lambda at, most: (tirx.const(-1, at), tirx.min_value(most)))
    return [x, *te.compute((7,), lambda i: first((44 - k, x[i, k]), axis=k))]


def least_position():
    """Return the first position of each row where something is; the start has 64 bits."""
    x, k = tensor(7, 45), te.reduce_axis((0, 45))
    none = tirx.const(1 << 40, "int64")

    def first(i):
        return te.min(tirx.Select(x[i, k] > 1, k.var.astype("int64"), none), axis=k)

    return [x, te.compute((7,), first)]


def least_of_all():
    """Return the least position of each row, which starts at the largest number of 64 bits."""
    x, k = tensor(7, 45), te.reduce_axis((0, 45))
    return [x, te.compute((7,), lambda i: te.min(k.var.astype("int64"), axis=k))]


def pool_gradient():
    above, x = te.placeholder((1, 2, 5, 7), name="g"), tensor(1, 2, 10, 14)
    return [above, x, topi.nn.pool_grad(above, x, [2, 2], [2, 2], [0] * 4, "max")]


def first_of_equal():
    """Return an argmax that keeps the first by the order of its steps."""
    x, k = tensor(7, 45), te.reduce_axis((0, 45))

    def larger(one, other):
        keep = one[1] >= other[1]
        return tirx.Select(keep, one[0], other[0]), tirx.Select(keep, one[1], other[1])

    first = te.comm_reducer(larger, lambda at, most: (tirx.const(-1, at), tirx.min_value(most)))
    return [x, *te.compute((7,), lambda i: first((k, x[i, k]), axis=k))]


def pool(kind, pad):
    x = tensor(1, 3, 12, 15)
    return [x, topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [pad] * 4, kind)]


def first_of_windows(size):
    """Return where the first maximum of each window is, with a border that does not count."""
    x, sides = tensor(3, 9, 11), [te.reduce_axis((0, size)) for _ in range(2)]

    first = te.comm_reducer(larger, lambda at, most: (tirx.const(99, at), tirx.min_value(most)))

    def window(c, i, j):
        y, z = i + sides[0] - 1, j + sides[1] - 1
        inside, low = tirx.all(y >= 0, y < 9, z >= 0, z < 11), tirx.min_value("float32")
        place = tirx.if_then_else(inside, y * 11 + z, 99)
        return first((place, tirx.if_then_else(inside, x[c, y, z], low)), axis=sides)

    return [x, *te.compute((3, 9, 11), window)]


def adaptive():
    x = tensor(2, 5, 11, 13)
    return [x, topi.nn.adaptive_pool(x, (3, 4), "avg")]


def total_loss():
    x, y = tensor(9, 31), tensor(9, 31)
    return [x, y, topi.sum(topi.multiply(x, y)) * (1 / 9)]


def guess(module, template):
    found = template.match(make_schedule(module))
    assert found is not None
    return found


def made(module, template, knobs):
    sch = make_schedule(module)
    template.apply(sch, template.match(sch), knobs)
    return sch.mod


@pytest.mark.parametrize("name", OWN)
def test_a_compute_that_nobody_has_named_is_scheduled_and_computes_the_same(name):
    make, _, small = OWN[name]
    module = to_declared_module(make(*small))
    found = choose_fallback(("static", "default"), module, CONDITIONS)
    assert found.engine == "static"
    assert found.planned is not None
    again = replay_schedule(
        module, found.planned.implementation, found.planned.schedule, CONDITIONS
    )
    assert_same(module, again, inputs=(normal, few), of_largest=1e-5)


TILED = {
    "min-plus": lambda: OWN["shortest paths"][0](11, 19, 7),
    "distances": lambda: OWN["distances"][0](6, 21, 9),
    "argmax of columns": lambda: argmax(0),
    "first of columns": lambda: first_of_wide(down=True),
    "gradient": data_gradient,
    "prefix": lambda: OWN["prefix maximum"][0](5, 19),
}


@pytest.mark.parametrize("name", TILED)
def test_tiles_of_every_kind_compute_the_same(name):
    module = to_declared_module(TILED[name]())
    found = guess(module, CONTRACTION)
    every = list(CONTRACTION.settings(found, SMALL))
    chosen = [*islice(every, 0, None, max(1, len(every) // 5)), CONTRACTION.fill(found, SMALL)]
    schedules = [made(module, CONTRACTION, tile) for tile in chosen]
    assert_same(module, *schedules, inputs=(normal, few), of_largest=1e-5)


@pytest.mark.parametrize(
    ("make", "forms"),
    [
        (lambda: argmax(1), {"lanes", "chains", "rows"}),
        (first_of_equal, {"chains", "rows"}),
        (first_of_wide, {"lanes", "chains", "rows"}),
        (falling, {"lanes", "chains", "rows"}),
        (reachable, {"chains", "rows"}),
        (lambda: first_of_windows(2), {"chains", "rows"}),
        (lambda: pool("max", 1), {"chains", "rows"}),
        (lambda: pool("avg", 0), {"chains", "rows"}),
        (adaptive, {"chains"}),
        (total_loss, {"lanes", "chains"}),
    ],
)
def test_every_form_computes_the_same(make, forms):
    module = to_declared_module(make())
    found = guess(module, REDUCTION)
    every = list(REDUCTION.settings(found, SMALL))
    assert {knobs.form for knobs in every} == forms
    assert REDUCTION.fill(found, SMALL) in every
    chosen = {(knobs.form, knobs.count, knobs.threads): knobs for knobs in every}
    schedules = [made(module, REDUCTION, knobs) for knobs in chosen.values()]
    assert_same(module, *schedules, inputs=(normal, few), of_largest=1e-5)


@each_row("size, is_written_out", [(3, True), (4, False), (5, False)])
def test_few_steps_with_branches_are_written_out(size, is_written_out):
    """TVM takes a minute to compile 25 of them."""
    found = guess(to_declared_module(first_of_windows(size)), REDUCTION)
    forms = {knobs.form for knobs in REDUCTION.settings(found, SMALL)}
    assert ("rows" in forms) == is_written_out


def reducing(tensors):
    sch = make_schedule(to_declared_module(tensors))
    blocks = map(sch.get, sch.get_child_blocks(sch.get_sblock("root")))
    return Reduction.of(next(block for block in blocks if not is_spatial(block)))


@each_row(
    "make, told",
    [
        (lambda: argmax(1), True),
        (first_of_equal, False),  # which of two equal ones is kept hangs on the order
        (total_loss, True),
        (lambda: OWN["shortest paths"][0](3, 3, 3), True),
    ],
)
def test_partial_results_are_joined_only_where_that_is_proved(make, told):
    found = reducing(make())
    assert (find_join(found.reducer, found.sums) is not None) == told


@each_row(
    "make, dtype",
    [
        (first_of_wide, "int32"),
        (lambda: first_of_wide(length=(1 << 31) + 8), "int64"),  # the last position has no room
        (lambda: first_of_wide(summed=True), "int64"),  # nor may a sum of positions have
        (least_position, "int64"),
        (least_of_all, "int64"),
    ],
)
def test_positions_are_counted_in_32_bits_only_where_they_have_room(make, dtype):
    starts = reducing(make()).narrowed().reducer.starts
    assert str(starts[0].ty.dtype) == dtype


def test_a_period_of_outputs_is_written_out_where_an_index_is_divided():
    module = to_declared_module(pool_gradient())
    found = choose_fallback(("static", "default"), module, CONDITIONS)
    assert found.planned is not None
    assert "* 2 + " in found.planned.module.script().replace("T.int64(2)", "2").replace(
        "T.int64(1)", "1"
    )
    assert_same(module, found.planned.module, inputs=(normal, few))


def windows(size, window, stride):
    """Return the largest of windows, of which the last ends where the image does."""
    x, few = tensor(2, size, size), (size - window) // stride + 1
    r, s = (te.reduce_axis((0, window)) for _ in range(2))

    def read(i, j, k):
        return x[i, j * stride + r, k * stride + s]

    largest = te.compute((2, few, few), lambda *at: te.max(read(*at), axis=[r, s]))
    return [x, largest]


@each_row("size, window, stride", [(29, 3, 2), (20, 2, 3), (34, 6, 4), (17, 3, 1)])
def test_vectors_of_windows_are_read_whole_and_none_behind_the_image(size, window, stride):
    module = to_declared_module(windows(size, window, stride))
    found = guess(module, REDUCTION)
    every = [one for one in REDUCTION.settings(found, SMALL) if one.form == "rows"]
    assert {one.width for one in every} == {4}
    schedules = [made(module, REDUCTION, one) for one in every]
    assert ("Shuffle" in schedules[0].script()) == (stride > 1)
    assert_same(module, *schedules, inputs=(normal,))


def test_a_branch_that_keeps_a_read_inside_stays():
    assert reducing(data_gradient()).reducer.branches()
    assert not reducing(OWN["prefix maximum"][0](5, 19)).reducer.branches()


PARTLY = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((20, 32), "float32"), y: T.Buffer((32,), "float32")):
    for j, k in T.grid({columns}, {rows}):
        with T.sblock("most"):
            vj = T.axis.spatial(32, j)
            vk = T.axis.reduce(20, {row})
            T.where({where})
            with T.init():
                y[vj] = T.float32({start})
            y[vj] = T.max(y[vj], x[vk, vj])
"""
USUAL = {"columns": 32, "rows": 20, "row": "k", "where": "True", "start": "-1e30"}


@each_row(
    "change, served",
    [
        ({}, True),
        ({"columns": 31}, False),
        ({"rows": 19}, False),
        ({"row": "19 - k"}, False),
        ({"where": "k < 19"}, False),
        ({"start": "0) + T.Cast('float32', vj"}, False),
    ],
)
def test_loops_that_leave_something_out_are_left_alone(change, served):
    module = to_declared_module(tvm.script.from_source(PARTLY.format(**USUAL | change)))
    for template in (CONTRACTION, REDUCTION):
        assert (template.match(make_schedule(module)) is not None) == served


@pytest.mark.parametrize("shape", [(3, 130), (9, 7)])
def test_a_row_with_a_rest_and_a_short_one_are_reduced(shape):
    x = tensor(*shape)
    module = to_declared_module([x, topi.min(x, axis=1)])
    found = choose_fallback(("static", "default"), module, CONDITIONS)
    assert found.planned is not None
    assert '"reduction"' in found.planned.schedule
    assert_same(module, found.planned.module, inputs=(normal, few))


def sums_of_windows(height, width):
    """Return sums of 3 x 3 neighbours, which share nothing but some elements."""
    x, r, s = tensor(height + 2, width + 2), te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    total = te.compute(
        (height, width), lambda i, j: te.max(tirx.abs(x[i + r, j + s]), axis=[r, s]), name="y"
    )
    return [x, total]


def test_strips_of_a_band_follow_each_other_where_tiles_share_no_operand():
    own, shared = sums_of_windows(70, 113), OWN["distances"][0](70, 113, 9)
    orders = []
    for tensors in (own, shared):
        found = CONTRACTION.match(make_schedule(to_declared_module(tensors)))
        assert found is not None
        orders.append(CONTRACTION.fill(found, SMALL).outer)
    assert orders == ["rows", "columns"]


def test_a_single_column_is_left_to_vectors_of_steps():
    x, k = tensor(64, 100), te.reduce_axis((0, 100))
    module = to_declared_module([x, te.compute((64, 1), lambda i, j: te.sum(x[i, k] + j, axis=k))])
    assert CONTRACTION.match(make_schedule(module)) is None
    found = REDUCTION.match(make_schedule(module))
    assert found is not None
    assert REDUCTION.fill(found, SMALL).form == "lanes"


@pytest.mark.parametrize(("shape", "alone"), [((8, 5000), True), ((512, 300), False)])
def test_long_rows_of_truths_are_read_one_after_the_other(shape, alone):
    """LLVM takes vectors of steps, and hides their latency itself."""
    x = tensor(*shape, dtype="bool")
    found = REDUCTION.match(make_schedule(to_declared_module([x, topi.all(x, axis=1)])))
    assert found is not None
    assert (REDUCTION.fill(found, SMALL).count == 1) == alone


def test_positions_of_columns_are_counted_in_32_bits():
    found = guess(to_declared_module(first_of_wide(down=True)), CONTRACTION)
    assert found.bits == 32


@pytest.mark.parametrize(("planes", "jobs"), [(1, 40), (32, 32)])
def test_a_border_of_few_planes_is_asked_for_where_it_is_read(planes, jobs):
    x = tensor(1, planes, 40, 30)
    module = to_declared_module([x, topi.nn.pool2d(x, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1], "max")])
    sch = make_schedule(module)
    found = REDUCTION.match(sch)
    assert found is not None
    REDUCTION.apply(sch, found, reduction.SideBySide("rows", 3, 1, 1, threads=True))
    script = sch.mod.script()
    assert f"T.parallel({jobs})" in script
    assert ("pad_temp" in script) == (planes > 1)
    assert_same(module, sch.mod, inputs=[normal], rtol=0)
