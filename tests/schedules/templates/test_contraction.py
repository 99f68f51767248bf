"""The template for sums of products, over shapes that tiles do not divide."""

import random
import re
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm_ffi import structural_walk

from autopipe.environment.machines import MACHINES
from autopipe.schedules import primitives
from autopipe.schedules.analysis.expressions import count_occurrences
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates import contraction
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.tiling import padding
from autopipe.schedules.tiling.lines import Lines
from tests.schedules.computed import assert_same
from tests.schedules.tensors import module_of
from tests.support.table import each_row

WIDE = HardwareParams(
    vector_bits=512, registers=32, cores=2, machine=MACHINES["intel-sapphire-rapids"]
)
NARROW = HardwareParams(vector_bits=256, registers=16, cores=3)
SMALL = HardwareParams(vector_bits=128, registers=16, cores=2)


def conv(size=(7, 9), channels=(5, 19), *, kernel=3, stride=1, dilation=1, groups=1, last="relu"):
    height, width = size
    read, written = channels
    x = te.placeholder((1, height, width, read * groups), "float32", "x")
    w = te.placeholder((kernel, kernel, read, written * groups), "float32", "w")
    y = topi.nn.conv(x, w, stride, kernel // 2 * dilation, dilation, groups, "NHWC", "HWIO")
    tensors = [x, w]
    if last != "nothing":
        bias = te.placeholder((1, 1, 1, written * groups), "float32", "bias")
        tensors.append(bias)
        y = topi.nn.relu(topi.add(y, bias))
    if last == "two":
        other = te.placeholder(y.shape, "float32", "other")
        scale = te.placeholder((1, y.shape[1], 1, 1), "float32", "scale")
        tensors += [other, scale]
        y = topi.multiply(topi.add(y, other), scale)
    return [*tensors, y], [1]


def first_channels(width=17, stride=1):
    x = te.placeholder((2, 5, 7, width), "float32", "x")
    w = te.placeholder((18, 5, 3, 3), "float32", "w")
    return [x, w, topi.nn.conv2d_nchw(x, w, stride, 1, 1)], [1]


def transposed():
    x = te.placeholder((1, 6, 5, 5), "float32", "x")
    w = te.placeholder((6, 7, 3, 3), "float32", "w")
    y = topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (1, 1))
    return [x, w, y], [1]


def conv1d():
    x = te.placeholder((2, 13, 5), "float32", "x")
    w = te.placeholder((3, 5, 11), "float32", "w")
    return [x, w, topi.nn.conv1d(x, w, 1, 1, 1, 1, "NWC", "WIO")], [1]


def conv3d():
    x = te.placeholder((1, 3, 4, 5, 3), "float32", "x")
    w = te.placeholder((2, 3, 3, 3, 9), "float32", "w")
    return [x, w, topi.nn.conv3d_ndhwc(x, w, 1, 1, 1, 1)], [1]


def depthwise(multiplier=1):
    x = te.placeholder((1, 5, 6, 21), "float32", "x")
    w = te.placeholder((3, 3, 21, multiplier), "float32", "w")
    return [x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)], [1]


def dense(rows=6, columns=40, *, turned=False, free=True):
    x = te.placeholder((rows, 33), "float32", "x")
    w = te.placeholder((columns, 33) if turned else (33, columns), "float32", "w")
    return [x, w, topi.sqrt(topi.matmul(x, w, transp_b=turned))], [1] if free else []


def attention(turned):
    x = te.placeholder((6, 11, 16), "float32", "x")
    y = te.placeholder((6, 21, 16) if turned else (6, 16, 21), "float32", "y")
    return [x, y, topi.nn.batch_matmul(x, y, transpose_b=turned)], []


def gram():
    x = te.placeholder((9, 14), "float32", "x")
    return [x, topi.matmul(x, x, transp_b=True)], []


def copied():
    """A product of a transposed activation, whose copy is read in place."""
    x, y = te.placeholder((14, 9), "float32", "x"), te.placeholder((14, 20), "float32", "y")
    return [x, y, topi.matmul(topi.transpose(x), y)], []


def long_indices():
    x, y = te.placeholder((9, 14), "float32", "x"), te.placeholder((14, 20), "float32", "y")
    tensors = [x, y, topi.matmul(x, y)]
    function = te.create_prim_func(tensors, index_dtype_override="int64")
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", [1])})


def activated_before():
    """A border, not the same on both sides, around what is computed from the input."""
    x = te.placeholder((1, 5, 6, 3), "float32", "x")
    w = te.placeholder((3, 2, 3, 18), "float32", "w")
    padded = topi.nn.pad(topi.sqrt(x), [0, 2, 1, 0], [0, 1, 0, 0])
    return [x, w, topi.nn.conv2d_nhwc(padded, w, 1, 0, 1)], [1]


def sliced():
    """Rows that are not one axis in memory, as the input is wider than what is read of it."""
    x = te.placeholder((1, 6, 8, 5), "float32", "x")
    w = te.placeholder((1, 1, 5, 18), "float32", "w")
    part = topi.strided_slice(x, [0, 0, 0, 0], [1, 5, 6, 5])
    return [x, w, topi.nn.conv2d_nhwc(part, w, 1, 0, 1)], [1]


def by_weights():
    """The gradient of a convolution by its weights: three columns fill no vector, 12 filters do."""
    x, g = te.placeholder((8, 9, 9), "float32", "x"), te.placeholder((12, 7, 7), "float32", "g")
    r, s = te.reduce_axis((0, 7), "r"), te.reduce_axis((0, 7), "s")
    y = te.compute(
        (12, 8, 3, 3),
        lambda f, n, i, j: te.sum(x[n, i + r, j + s] * g[f, r, s], axis=[r, s]),
    )
    return [x, g, y], []


CASES = {
    "by_weights": by_weights,
    "sliced": sliced,
    "activated_before": activated_before,
    "ragged": conv,
    "strided": lambda: conv(stride=2),
    "dilated": lambda: conv(dilation=2),
    "flat": lambda: conv(kernel=1),
    "flat_strided": lambda: conv(kernel=1, stride=2),
    "two_inputs_after": lambda: conv(kernel=1, last="two"),
    "nothing_after": lambda: conv(last="nothing"),
    "groups": lambda: conv(channels=(3, 6), groups=3),
    "wide_groups": lambda: conv(channels=(3, 34), groups=2, kernel=1),
    "channels_first": first_channels,
    "channels_first_short": lambda: first_channels(9),
    "channels_first_strided": lambda: first_channels(stride=2),
    "transposed": transposed,
    "conv1d": conv1d,
    "conv3d": conv3d,
    "depthwise": depthwise,
    "depthwise_twice": lambda: depthwise(2),
    "dense": dense,
    "one_row": lambda: dense(rows=1, columns=100),
    "turned_weight": lambda: dense(turned=True),
    "turned_activation": lambda: dense(turned=True, free=False),
    "attention": lambda: attention(turned=False),
    "attention_turned": lambda: attention(turned=True),
    "gram": gram,
    "copied": copied,
    "long_indices": long_indices,
}


@cache
def module(case):
    made = CASES[case]()
    return made if isinstance(made, tvm.IRModule) else module_of(*made)


def served(sch):
    found = CONTRACTION.match(sch)
    assert found is not None
    return found


@cache
def recognized(case):
    return served(Schedule(module(case)))


def tiled(what, tile):
    sch = Schedule(what)
    CONTRACTION.apply(sch, served(sch), tile)
    return sch.mod


def sample(case, hardware, count):
    every = list(CONTRACTION.settings(recognized(case), hardware))
    return random.Random(case).sample(every, min(count, len(every)))


@each_row("case", CASES)
def test_static_and_other_settings_compute_the_same(case):
    filled = CONTRACTION.fill(recognized(case), WIDE)
    filled = replace(filled, fetched=recognized(case).ordered)
    tiles = {filled, *sample(case, WIDE, 1), *sample(case, SMALL, 1)}
    assert_same(module(case), *(tiled(module(case), tile) for tile in tiles))


@each_row("hardware, case", product([WIDE, NARROW, SMALL], CASES))
def test_every_setting_fits_the_registers(case, hardware):
    found = recognized(case)
    every = list(CONTRACTION.settings(found, hardware))
    assert len(set(every)) == len(every) > 0
    assert CONTRACTION.fill(found, hardware) in every
    for tile in every:
        vectors = tile.columns // tile.width
        assert tile.columns % tile.width == 0
        assert tile.width in {1, 2, 4, 8, 16}
        assert tile.width * found.bits <= hardware.vector_bits
        assert tile.rows <= found.height
        assert tile.rows * vectors + vectors + 1 <= hardware.registers
        inside = tile.columns <= found.lines.granule
        assert inside or (tile.packed and found.lines.alone)


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(
    size=st.tuples(st.integers(1, 17), st.integers(1, 17)),
    channels=st.tuples(st.integers(1, 9), st.integers(2, 70)),
    kernel=st.sampled_from([(1, 1, 1), (1, 2, 1), (1, 1, 3), (3, 1, 1), (3, 2, 1), (3, 1, 3)]),
    data=st.data(),
)
def test_convolutions_of_any_size_are_right(size, channels, kernel, data):
    kernel, stride, groups = kernel
    what = module_of(*conv(size, channels, kernel=kernel, stride=stride, groups=groups))
    found = served(Schedule(what))
    hardware = data.draw(st.sampled_from([WIDE, NARROW, SMALL]))
    every = list(CONTRACTION.settings(found, hardware))
    tile = data.draw(st.sampled_from([CONTRACTION.fill(found, hardware), *every]))
    assert_same(what, tiled(what, tile))


LINES = {
    "ragged": Lines((2,), (3,), 19, (), 1, (True,), free=True, alone=True),
    "flat": Lines((1, 2), (3,), 19, (), 1, (True,), free=True, alone=True),
    "sliced": Lines((2,), (3,), 18, (), 1, (True,), free=True, alone=True),
    "groups": Lines((2,), (3,), 6, (), 1, (True,), free=True, alone=True),
    "depthwise": Lines((2,), (3,), 21, (), 1, (True,), free=True, alone=False),
    "attention": Lines((1,), (2,), 21, (0,), 1, (False, True), free=False, alone=True),
    "attention_turned": Lines((1,), (2,), 21, (0,), 1, (True,), free=False, alone=True),
    "channels_first": Lines((1,), (3,), 17, (0, 2), 0, (False,), free=False, alone=True),
    "channels_first_short": Lines((3,), (1,), 18, (), 1, (True,), free=True, alone=True),
    "channels_first_strided": Lines((3,), (1,), 18, (), 1, (True,), free=True, alone=True),
}


@each_row("case", LINES)
def test_rows_and_columns_follow_memory(case):
    assert recognized(case).lines == LINES[case]


def test_an_odd_number_of_channels_is_summed_in_whole_vectors():
    assert CONTRACTION.fill(recognized("wide_groups"), WIDE).columns == 48


def test_the_last_tile_overlaps_the_one_before():
    script = _scheduled("dense", columns=32).mod.script()
    assert "T.min(" in script
    assert "T.where" not in script
    assert "if " not in script


def test_what_is_written_and_what_is_as_large_is_fetched_once_a_line():
    script = _scheduled("two_inputs_after", rows=4, columns=16, fetched=True).mod.script()
    assert script.count("llvm.prefetch") == 2  # of each of 4 rows: the residual and the result
    assert "llvm.prefetch" not in _scheduled("two_inputs_after", fetched=False).mod.script()
    assert not any(
        tile.fetched for tile in CONTRACTION.settings(recognized("channels_first_short"), WIDE)
    )


def test_each_step_fetches_the_packed_weights_of_a_later_one_a_line_at_a_time():
    script = _scheduled("dense", columns=32, packed=True, fetched=False, ahead=48).mod.script()
    fetches = [line for line in script.splitlines() if "llvm.prefetch" in line]
    assert len(fetches) == 2  # of 32 floats
    assert all(re.search(r"_packed\[.* \+ 48, \d+\]", line) for line in fetches)


def test_nothing_is_read_beyond_a_group():
    function = _scheduled("wide_groups", columns=48).mod["main"]
    vectors: list[tvm.tirx.For] = []
    loads: list[tvm.ir.TensorLoad] = []
    structural_walk(function.body, (tvm.tirx.For, vectors.append))
    structural_walk(function.body, (tvm.ir.TensorLoad, loads.append))
    lanes = [loop.loop_var for loop in vectors if loop.kind == tvm.tirx.ForKind.VECTORIZED]
    data = [load for load in loads if load.source.same_as(function.params[0])]
    weights = [load for load in loads if load.source.same_as(function.params[1])]
    assert data
    assert not any(count_occurrences(load, lane) for load in data for lane in lanes)
    assert all("T.min(" in str(load) for load in weights)


def test_any_way_to_say_what_is_inside_a_border_is_understood():
    x = te.placeholder((5, 8), "float32", "x")

    def padded(i, j):
        inside = tvm.tirx.all(i > 0, i <= 5, j < 7)
        return tvm.tirx.if_then_else(inside, x[i - 1, j], 0.0)

    sch = Schedule(te.create_prim_func([x, te.compute((7, 8), padded, "padded")]))
    found = padding.Padding.of(sch.get(sch.get_sblock("padded")))
    assert found is not None
    assert found.inside == ((1, 6), (0, 7))


@pytest.mark.parametrize("case", ["activated_before", "groups", "attention_turned"])
def test_many_threads_compute_the_same(case, monkeypatch):
    for where in (primitives, padding, contraction):
        monkeypatch.setattr(where, "ELEMENTS", 1)
    tile = replace(CONTRACTION.fill(recognized(case), SMALL), shared_from=1)
    sch = Schedule(module(case))
    CONTRACTION.apply(sch, recognized(case), tile)
    assert sch.mod.script().count("T.parallel") == 2
    assert_same(module(case), sch.mod)


def test_threads_share_a_product_from_as_many_multiply_adds_as_the_knob_says():
    x, w = te.placeholder((8, 64), "float32", "x"), te.placeholder((64, 256), "float32", "w")
    function = te.create_prim_func([x, w, topi.matmul(x, w)])
    for few, threads in ((1 << 17, 1), (1 << 18, 0)):
        sch = Schedule(tvm.IRModule({"main": function}))
        found = CONTRACTION.match(sch)
        assert found is not None
        tile = replace(CONTRACTION.fill(found, NARROW), shared_from=few)
        CONTRACTION.apply(sch, found, tile)
        assert sch.mod.script().count("T.parallel") == threads


@pytest.mark.parametrize(("steps", "threads"), [(64, 0), (512, 1)])
def test_many_weights_are_read_by_all_threads_even_for_one_row(steps, threads):
    x = te.placeholder((1, steps), "float32", "x")
    w = te.placeholder((steps, 1376), "float32", "w")
    function = te.create_prim_func([x, w, topi.matmul(x, w)])
    sch = Schedule(tvm.IRModule({"main": function.with_attr("layout_free_buffers", [1])}))
    found = CONTRACTION.match(sch)
    assert found is not None
    CONTRACTION.apply(sch, found, CONTRACTION.fill(found, NARROW))
    assert sch.mod.script().count("T.parallel") == threads


def test_columns_that_fill_no_vector_are_others_that_can_be_copied():
    found = recognized("by_weights").lines
    assert (found.columns, found.granule, found.packed) == ((0,), 12, (True,))


def test_only_whole_lines_are_tested_for_being_border():
    sch = Schedule(module("activated_before"))
    found = recognized("activated_before")
    CONTRACTION.apply(sch, found, CONTRACTION.fill(found, WIDE))
    script = sch.mod.script()
    assert script.count("if ") == 1
    assert "if_then_else" not in script


def test_a_sum_that_is_an_output_too_is_refused():
    x, w = te.placeholder((6, 33), "float32"), te.placeholder((33, 40), "float32")
    y = topi.matmul(x, w)
    sch = Schedule(module_of([x, w, y, topi.tanh(y)], [1]))
    found = served(sch)
    with pytest.raises(tvm.s_tir.ScheduleError, match="output too"):
        CONTRACTION.apply(sch, found, CONTRACTION.fill(found, WIDE))


def _scheduled(case, **knobs):
    tile = next(
        tile
        for tile in CONTRACTION.settings(recognized(case), WIDE)
        if all(getattr(tile, name) == value for name, value in knobs.items())
    )
    sch = Schedule(module(case))
    CONTRACTION.apply(sch, recognized(case), tile)
    return sch
