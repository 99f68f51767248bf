"""Templates on functions whose sizes are open: right at sizes on either side of whole tiles."""

import json
import re
from dataclasses import replace

import pytest
import tvm
from tvm import te, tirx, topi

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.target.target import make_host_target
from autopipe.measure.check import WrongAnswer, checked
from autopipe.schedules import guarded
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.implementations.implementation import build_implementations
from autopipe.schedules.implementations.winograd import winograd4
from autopipe.schedules.templates import winograd
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from autopipe.schedules.templates.serve import AnyServed, serve
from autopipe.schedules.templates.template import (
    Matcher,
    dump,
    match_function,
    replay_setting,
    serves_dynamic,
)
from autopipe.schedules.tiling import nest, transposed_blocks, windows
from tests.support.table import each_row

TARGET = make_host_target(2)
HARDWARE = HardwareParams.of(TARGET)
WIDE = replace(HARDWARE, vector_bits=512, registers=32)
"""Vectors of 16, which LLVM cuts in pieces where the processor has shorter ones."""


def module(tensors, weights=(), smallest=1, likely=24, largest=48):
    """Return a function whose sizes are all known to be so large."""
    function = te.create_prim_func(tensors, index_dtype_override="int64")
    function = function.with_attr("layout_free_buffers", list(weights))
    count = len(kernel_sizes.open_variables(function))
    known = [[smallest, likely, largest]] * count
    return tvm.IRModule({"main": function.with_attr(kernel_sizes.SIZES, known)})


def product(left, right, length):
    step = te.reduce_axis((0, length), "k")
    shape = (left.shape[0], right.shape[1])
    return te.compute(shape, lambda i, j: te.sum(left[i, step] * right[step, j], step), "product")


def size(name="n"):
    return tirx.Var(name, "int64")


def rows(smallest=1):
    x, w = te.placeholder((size(), 24), name="x"), te.placeholder((24, 20), name="w")
    y = product(x, w, 24)
    return module([x, w, topi.nn.relu(y)], weights=[1], smallest=smallest)


def batched_rows():
    """Rows along a batch that probably has one element, and lies in memory like the next axis."""
    n, batch = size(), size("batch")
    x, w = te.placeholder((batch, n, 24), name="x"), te.placeholder((24, 20), name="w")
    step = te.reduce_axis((0, 24), "k")
    y = te.compute(
        (batch, n, 20), lambda b, i, j: te.sum(x[b, i, step] * w[step, j], step), "product"
    )
    workload = module([x, w, topi.nn.relu(y)], weights=[1])
    known = [[1, 1, 4], [1, 24, 4000]]
    return tvm.IRModule({"main": workload["main"].with_attr(kernel_sizes.SIZES, known)})


def columns():
    n = size()
    q, k = te.placeholder((n, 16), name="q"), te.placeholder((16, n), name="k")
    return module([q, k, product(q, k, 16)])


def scores():
    """With tiles of several vectors, and another size around."""
    n, batch = size(), size("batch")
    q = te.placeholder((batch, n, 16), name="q")
    k = te.placeholder((batch, 16, n), name="k")
    step = te.reduce_axis((0, 16), "k")
    shape = (batch, n, n)
    total = te.compute(
        shape, lambda b, i, j: te.sum(q[b, i, step] * k[b, step, j], step), "product"
    )
    return module([q, k, topi.nn.relu(total)], likely=40, largest=70)


def terms():
    n = size()
    p, v = te.placeholder((n, n), name="p"), te.placeholder((n, 16), name="v")
    return module([p, v, product(p, v, n)])


def image():
    h, w = size("h"), size("w")
    x = te.placeholder((1, 4 * h, 4 * w, 4), name="x")
    kernel = te.placeholder((3, 3, 4, 8), name="kernel")
    y = topi.nn.conv2d_nhwc(x, kernel, 1, 1, 1)
    return module([x, kernel, h, w, y], weights=[1], likely=3, largest=5)


def bands():
    """A border along an axis before an open one, of which there is one step at least."""
    frames = tirx.max(size("n") // 4, 1)
    x = te.placeholder((1, 12, frames, 3), name="x")
    kernel = te.placeholder((3, 1, 3, 8), name="kernel")
    y = topi.nn.conv2d_nhwc(x, kernel, 1, (2, 0, 2, 0), (2, 1))
    return module([x, kernel, frames.a.a, y], weights=[1], likely=64, largest=90)


def frames():
    """The same with a border along both axes, which TVM tests for one step and for more."""
    steps = tirx.max(size("n") // 4, 1)
    x = te.placeholder((1, 12, steps, 3), name="x")
    kernel = te.placeholder((3, 3, 3, 8), name="kernel")
    y = topi.nn.conv2d_nhwc(x, kernel, 1, 1, 1)
    return module([x, kernel, steps.a.a, y], weights=[1], likely=64, largest=90)


def depthwise():
    h, w = size("h"), size("w")
    x = te.placeholder((1, h, w, 8), name="x")
    kernel = te.placeholder((3, 3, 8, 1), name="kernel")
    y = topi.nn.depthwise_conv2d_nhwc(x, kernel, (1, 1), (1, 1), (1, 1))
    return module([x, kernel, topi.nn.relu(y)], weights=[1], likely=12, largest=14)


def strided():
    h, w = size("h"), size("w")
    x = te.placeholder((1, 2 * h, 2 * w, 8), name="x")
    kernel = te.placeholder((5, 3, 8, 1), name="kernel")
    y = topi.nn.depthwise_conv2d_nhwc(x, kernel, (2, 2), (2, 1, 2, 1), (1, 1))
    return module([x, kernel, h, w, y], weights=[1], likely=9, largest=12)


def pooled():
    h, w = size("h"), size("w")
    x = te.placeholder((1, 4 * h, 4 * w, 8), name="x")
    y = topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")
    return module([x, h, w, y], likely=5, largest=7)


def image_mean():
    h, w = size("h"), size("w")
    x = te.placeholder((1, h, w, 16), name="x")
    return module([x, h, w, topi.sum(x, axis=[1, 2], keepdims=True)])


def softmax():
    n = size()
    x = te.placeholder((3, n, n), name="x")
    return module([x, topi.nn.softmax(x)])


def mean():
    x = te.placeholder((size(), 37), name="x")
    return module([x, topi.sum(x, axis=1) / 37.0])


def rectified():
    h, w = size("h"), size("w")
    x = te.placeholder((1, h, w, 3), name="x")
    return module([x, topi.nn.relu(x)])


def from_planes():
    h, w = size("h"), size("w")
    x = te.placeholder((1, 3, h, w), name="x")
    return module([x, topi.transpose(x, [0, 2, 3, 1])])


def to_planes():
    h, w = size("h"), size("w")
    x = te.placeholder((1, h, w, 20), name="x")
    return module([x, topi.transpose(x, [0, 3, 1, 2])], likely=20, largest=24)


def transposed():
    y = te.placeholder((size(), size("m")), name="y")
    x = te.placeholder((y.shape[1], y.shape[0]), name="x")
    return module([x, y, topi.add(topi.transpose(x), y)])


def joined():
    n = size()
    x, y = te.placeholder((n, 24), name="x"), te.placeholder((n, 40), name="y")
    return module([x, y, topi.concatenate([x, y], axis=1)])


@each_row(
    "made, template",
    [
        (rows, "contraction"),
        (batched_rows, "contraction"),
        (columns, "contraction"),
        (scores, "contraction"),
        (terms, "contraction"),
        (image, "contraction"),
        (bands, "contraction"),
        (frames, "contraction"),
        (softmax, "rows"),
        (mean, "rows"),
        (depthwise, "window"),
        (strided, "window"),
        (pooled, "window"),
        (image_mean, "window"),
        (rectified, "elementwise"),
        (from_planes, "transpose"),
        (to_planes, "transpose"),
        (transposed, "transpose"),
        (joined, "elementwise"),
    ],
)
def test_a_function_of_dynamic_sizes_is_right_around_whole_tiles(made, template):
    workload = made()
    served = _served(workload)
    assert template == served.template.name
    checked(workload, served.schedule.mod, TARGET)
    again = replay_setting(workload, served.template, _document(served), HARDWARE)
    tvm.ir.assert_structural_equal(again.mod, served.schedule.mod)
    wide = serve(workload, WIDE)
    assert wide is not None
    checked(workload, wide.schedule.mod, TARGET)


def _document(served):
    return json.loads(dump(served.template, served.knobs))


def _served(workload) -> AnyServed:
    found = serve(workload, HARDWARE)
    assert found is not None
    return found


def test_rows_lie_along_a_batch_and_few_of_them_start_no_threads():
    text = _served(batched_rows()).schedule.mod.script()
    assert "batch * n" in text
    assert text.count("T.parallel(") > 0
    assert "batch * n * T.int64(480) >=" in text or "T.int64(480) * batch * n >=" in text
    assert "T.parallel(" not in _served(rows()).schedule.mod.script()  # never enough to do


@each_row("smallest, heights", [(7, [12, 4]), (8, [8]), (11, [11]), (12, [12])])
def test_a_tile_has_the_rows_of_the_smallest_size_if_these_are_nearly_as_many(smallest, heights):
    workload = rows(smallest)
    sch, match = match_function(workload, CONTRACTION)
    CONTRACTION.apply(sch, match, replace(CONTRACTION.fill(match, HARDWARE), rows=12))
    text = sch.mod.script()
    assert [int(height) for height in re.findall(r"alloc_buffer\(\((\d+), 20\)", text)] == heights
    checked(workload, sch.mod, TARGET)


def test_loops_that_no_size_runs_are_not_written():
    n = size()
    x = te.placeholder((n, 16), name="x")
    bordered = topi.nn.pad(x, (0, 4), (0, 4))
    y = product(bordered, te.placeholder((24, 8), name="w"), 20)
    text = _served(module([x, y.op.input_tensors[1], y])).schedule.mod.script()
    assert "range(T.int64(0))" not in text


def filtered_image():
    h, w = size("h"), size("w")
    x = te.placeholder((1, 3 * h, 2 * w, 4), name="x")
    kernel = te.placeholder((3, 3, 4, 8), name="kernel")
    y = topi.nn.relu(topi.nn.conv(x, kernel, 1, 1, 1, 1, "NHWC", "HWIO"))
    return module([x, kernel, h, w, y], weights=[1], likely=9, largest=12)


def test_minimal_filtering_is_right_where_blocks_of_tiles_are_not_whole():
    workload = filtered_image()
    rewritten = winograd4.rewrite(workload)
    served = _served(rewritten)
    assert served.template.name == "winograd"
    checked(workload, served.schedule.mod, TARGET)
    instance = kernel_sizes.bind_likely_sizes(workload)
    closed = _served(winograd4.rewrite(instance))  # type: ignore[arg-type]
    assert closed.knobs == served.knobs
    conditions = Conditions(TARGET, HARDWARE)
    assert winograd4.gain(workload, HARDWARE) == winograd4.gain(instance, HARDWARE)  # type: ignore[arg-type]
    assert list(build_implementations(workload, conditions)) == list(
        build_implementations(instance, conditions)  # type: ignore[arg-type]
    )


def test_few_tiles_are_done_by_one_thread_without_those_that_pad_a_block(monkeypatch):
    monkeypatch.setattr(winograd, "PRODUCTS", 1)
    workload = filtered_image()
    served = _served(winograd4.rewrite(workload))
    text = served.schedule.mod.script()
    assert ">= T.int64(17):" in text
    assert text.count(">> T.int64(63) == T.int64(0):") == 6  # inputs, sums and outputs, twice
    assert text.count("winograd_kernel = T.sblock_alloc_buffer") == 1  # both read the same one
    assert text.count('T.sblock("winograd_product_update")') == 2
    checked(workload, served.schedule.mod, TARGET)


@pytest.mark.parametrize("made", [terms, image_mean, to_planes])
def test_a_plain_schedule_starts_threads_only_where_there_is_enough_to_do(monkeypatch, made):
    monkeypatch.setattr(guarded, "ELEMENTS", 500)
    monkeypatch.setattr(default, "PRODUCTS", 1)
    monkeypatch.setattr(default, "ELEMENTS", 1)
    workload = made()
    scheduled = default.schedule(workload, TARGET)
    text = scheduled.script()
    assert "T.parallel(" in text
    assert ">= T.int64(500):" in text
    checked(workload, scheduled, TARGET)


@pytest.mark.parametrize(
    ("made", "place"), [(rows, nest), (to_planes, transposed_blocks), (depthwise, windows)]
)
def test_a_band_that_is_left_out_is_found(monkeypatch, made, place):
    monkeypatch.setattr(place, "parts_of", lambda extent, part: extent // part)
    workload = made()
    wrong = _served(workload)
    with pytest.raises(WrongAnswer, match="random inputs"):
        checked(workload, wrong.schedule.mod, TARGET)


def test_open_and_static_functions_have_the_same_knobs_and_packing():
    workload = rows()
    instance = kernel_sizes.bind_likely_sizes(workload)
    closed, opened = _served(instance), _served(workload)
    assert closed.knobs == opened.knobs
    packed = [found.schedule.get_sblock("product_packed") for found in (closed, opened)]
    shapes = [
        [int(extent) for extent in found.schedule.get(block).writes[0].source.shape]
        for found, block in zip((closed, opened), packed, strict=True)
    ]
    assert shapes[0] == shapes[1]


def test_templates_say_whether_they_serve_dynamic_functions():
    x = te.placeholder((size(), 64), name="x")
    y = te.compute((size("m"), 64), lambda i, j: x[i, j // 2])
    assert Matcher.of(module([x, topi.nn.relu(x)])).match(ELEMENTWISE) is not None
    assert Matcher.of(module([x, y.shape[0], y])).match(ELEMENTWISE) is None  # not in vectors
    assert Matcher.of(kernel_sizes.bind_likely_sizes(rows())).match(CONTRACTION) is not None  # type: ignore[arg-type]
    assert serves_dynamic(dump(CONTRACTION, _served(rows()).knobs))
    assert not serves_dynamic('{"template": "reduction"}')
    assert not serves_dynamic("[]")
    assert not serves_dynamic("{")


@each_row(
    "extent, least",
    [
        (lambda n: n * 8 + 1, 25),
        (lambda n: (n + 5) // 2, 4),
        (lambda n: 64 - n, 0),
        (lambda n: n * -1 + 64, 0),
        (lambda n: n % 8, 0),
    ],
)
def test_the_least_an_extent_can_be_is_known_where_it_only_grows(extent, least):
    known = kernel_sizes.DynamicSizes({"n": 3}, {"n": 8}, {"n": 16})
    assert kernel_sizes.find_min_extent(extent(size()), known) == least
