import json
from itertools import product

import tvm
from tvm import te, topi
from tvm.s_tir import Schedule

from autopipe.measure.build import build_kernel
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates import list_templates, window
from autopipe.schedules.templates.template import dump, replay_setting
from autopipe.schedules.templates.window import WINDOW
from autopipe.schedules.tiling import window_tile
from autopipe.schedules.tiling.window_tile import WindowTile
from tests.schedules.computed import CHECKED, assert_same, normal
from tests.schedules.tasks import TARGET
from tests.schedules.tensors import tensor
from tests.support.table import each_row

WIDE = HardwareParams(vector_bits=512, registers=32, cores=2)
NARROW = HardwareParams(vector_bits=128, registers=16, cores=3)


def depthwise(size=9, channels=24, kernel=3, *, stride=1, pad=1, dilation=1, layout="NHWC"):
    last = layout == "NHWC"
    x = tensor(1, size, size, channels) if last else tensor(1, channels, size, size)
    w = tensor(kernel, kernel, 1, channels) if last else tensor(channels, 1, kernel, kernel)
    bias = tensor(1, 1, 1, channels) if last else tensor(1, channels, 1, 1)
    y = topi.nn.conv(x, w, stride, pad, dilation, channels, layout, "HWIO" if last else "OIHW")
    return [x, w, bias, topi.nn.relu(topi.add(y, bias))], [1, 2]


def in_one_dimension():
    x, w = tensor(2, 30, 16), tensor(5, 1, 16)
    return [x, w, topi.nn.conv(x, w, 1, 2, 1, 16, "NWC", "WIO")], [1]


def pool(kind, size=9, channels=8, *, stride=2, pad=1, count=True, layout="NHWC", dtype="float32"):
    shape = (2, size, size, channels) if layout == "NHWC" else (2, channels, size, size)
    x = tensor(*shape, dtype=dtype)
    y = topi.nn.pool2d(x, [3, 3], [stride] * 2, [1, 1], [pad] * 4, kind, layout=layout,
                       count_include_pad=count)  # fmt: skip
    return [x, y], []


def neighbouring_channels():
    x = tensor(1, 1, 6, 5, 32)
    return [x, topi.nn.pool3d(x, [5, 1, 1], [1] * 3, [1] * 3, [2, 0, 0, 2, 0, 0], "avg",
                              layout="NCHWD", count_include_pad=True)], []  # fmt: skip


def mean(*, keep, channels=40):
    x = tensor(2, 7, 5, channels)
    total = topi.sum(topi.nn.relu(x), axis=(1, 2), keepdims=keep)
    return [x, topi.multiply(total, 1 / 35)], []


def whole():
    x = tensor(1, 40, 40, 64)
    return [x, topi.nn.pool2d(x, [40, 40], [1, 1], [1, 1], [0] * 4, "avg", layout="NHWC")], []


def columns():
    x = tensor(50, 36)
    return [x, topi.sum(x, axis=0)], []


def roots():
    """Columns that whole vectors do not divide; each is read twice."""
    x = tensor(2, 6, 4, 12)
    return [x, topi.nn.lrn(x, 3, 1, 1e-4, 0.75, 2.0)], []


def copied():
    x = tensor(7, 7, 12)
    return [x, topi.sum(topi.expand_dims(x, 0), axis=(1, 2))], []


SERVED = {
    "depthwise": depthwise,
    "strided": lambda: depthwise(stride=2),
    "five_by_five": lambda: depthwise(8, 32, 5, pad=2),
    "unpadded": lambda: depthwise(pad=0),
    "dilated": lambda: depthwise(dilation=2, pad=2),
    "sparse": lambda: depthwise(dilation=6, pad=6),
    "no vector divides the channels": lambda: depthwise(channels=27),
    "strips overlap": lambda: depthwise(10, 42, 5, stride=2, pad=2),
    "mean of odd channels": lambda: mean(keep=True, channels=51),
    "max of odd channels": lambda: pool("max", channels=19),
    "average of odd channels": lambda: pool("avg", channels=20, count=False),
    "planes": lambda: depthwise(8, 6, layout="NCHW"),
    "one_dimension": in_one_dimension,
    "max": lambda: pool("max"),
    "max_of_integers": lambda: pool("max", dtype="int32"),
    "average": lambda: pool("avg"),
    "average_without_padding": lambda: pool("avg", count=False),
    "max_of_planes": lambda: pool("max", 8, stride=1, layout="NCHW"),
    "unpadded_max": lambda: pool("max", 11, 64, pad=0),
    "neighbouring_channels": neighbouring_channels,
    "mean": lambda: mean(keep=True),
    "flat_mean": lambda: mean(keep=False),
    "columns": columns,
    "whole": whole,
    "copied": copied,
    "roots": roots,
}


def dense():
    x, w = tensor(6, 32), tensor(32, 16)
    return [x, w, topi.matmul(x, w)], [1]


def vector_times_matrix():
    x, w = tensor(1, 32), tensor(32, 16)
    return [x, w, topi.matmul(x, w)], [1]


def of_any_size():
    x = tensor(te.var("n"), 8, 8, 16)
    return [x, topi.sum(x, axis=(1, 2))], []


def convolution():
    x, w = tensor(1, 4, 8, 8), tensor(8, 4, 3, 3)
    return [x, w, topi.nn.conv2d_nchw(x, w, 1, 1, 1)], [1]


def multiplied():
    x, w = tensor(1, 8, 8, 8), tensor(3, 3, 8, 2)
    return [x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)], [1]


def softmax():
    x = tensor(6, 32)
    return [x, topi.nn.softmax(x)], []


def argmax():
    x = tensor(6, 32)
    return [x, topi.argmax(x, axis=0)], []


def variance():
    x, y = tensor(6, 5, 32), tensor(6, 5, 32)
    return [x, y, topi.sum(topi.multiply(x, y), axis=2)], []


NOT_SERVED = {
    "dense": dense,
    "vector_times_matrix": vector_times_matrix,
    "of_any_size": of_any_size,
    "convolution": convolution,
    "multiplied": multiplied,
    "softmax": softmax,
    "argmax": argmax,
    "along_memory": variance,
    "strided_planes": lambda: pool("max", 8, layout="NCHW"),
    "odd_channels": lambda: depthwise(channels=7),
}


def module_of(case):
    tensors, weights = case
    function = te.create_prim_func(tensors).with_attr("layout_free_buffers", weights)
    return tvm.IRModule({"main": function})


def found_in(sch):
    found = WINDOW.match(sch)
    assert found is not None
    return found


def scheduled(module, tile=None, hardware=WIDE):
    sch = make_schedule(module)
    found = found_in(sch)
    WINDOW.apply(sch, found, tile or WINDOW.fill(found, hardware))
    return sch.mod


@each_row("case", SERVED)
def test_a_scheduled_function_computes_the_same(case):
    module = module_of(SERVED[case]())
    made = [scheduled(module, hardware=hardware) for hardware in (WIDE, NARROW)]
    assert_same(module, *made, inputs=(normal, *CHECKED), of_largest=1e-6)


@each_row("case", NOT_SERVED)
def test_other_functions_are_left_to_others(case):
    assert WINDOW.match(Schedule(module_of(NOT_SERVED[case]()))) is None


def test_it_comes_before_the_template_of_products():
    names = [template.name for template in list_templates()]
    assert names.index(WINDOW.name) < names.index("contraction")


@each_row("hardware, case", product([WIDE, NARROW], SERVED))
def test_every_tile_fits_the_registers_and_divides_or_overlaps(case, hardware):
    found = found_in(Schedule(module_of(SERVED[case]())))
    dividing, every = (
        list(WINDOW.settings(found, hardware, overlap=overlap)) for overlap in (False, True)
    )
    assert len(set(every)) == len(every)
    assert WINDOW.fill(found, hardware) in every
    assert all(found.extents[-1] % tile.columns == 0 for tile in dividing)
    assert all(len(found.extents) == 1 or found.extents[-2] % t.rows == 0 for t in dividing)
    for tile in every:
        assert tile.columns % tile.width == 0
        assert tile.width in {1, 2, 4, 8, 16}
        assert tile.columns <= found.extents[-1]
        assert len(found.extents) == 1 or tile.rows <= found.extents[-2]
        if found.extents[-1] % tile.columns:
            assert tile.width * 2 > min(hardware.lanes(found.bits), found.extents[-1])
        sums = tile.rows * tile.columns // tile.width
        assert sums <= hardware.registers
        assert sums * tile.width * found.bits // 8 < window_tile.STACK


def test_every_setting_of_the_knobs_is_right(monkeypatch):
    monkeypatch.setattr(window_tile, "WINDOW_PRODUCTS", 1)
    module = module_of(depthwise())
    tiles = product([(1, 1, 1), (3, 24, 8), (9, 8, 4)], [2, 3, 4])
    made = [scheduled(module, WindowTile(*tile, shared)) for tile, shared in tiles]
    assert all("T.parallel" in result.script() for result in made)
    assert_same(module, *made, inputs=[normal], of_largest=1e-6)


def test_long_windows_are_not_written_out(monkeypatch):
    monkeypatch.setattr(window, "UNROLLED", 4)
    module = module_of(depthwise())
    assert_same(module, scheduled(module), inputs=[normal], of_largest=1e-6)


def test_a_mean_over_an_image_has_several_sums():
    found = found_in(Schedule(module_of(whole())))
    assert WINDOW.fill(found, WIDE).columns == 64


def test_sums_and_input_rows_are_on_the_stack():
    """TVM asks its runtime for other buffers, for each tile anew."""
    module = module_of(pool("max", 18, 16))
    tiles = WINDOW.settings(found_in(Schedule(module)), WIDE)
    tile = max(tiles, key=lambda tile: tile.rows * tile.columns)
    assert tile.rows > 1
    assert "AllocWorkspace" not in build_kernel(
        scheduled(module, tile), TARGET
    ).library.inspect_source("ll")


@each_row("channels", {"few": 1, "many": 32})
def test_roots_of_sums_pay_for_threads(channels):
    x = tensor(4, {"few": 1, "many": 32}[channels], 28, 28)
    made = scheduled(module_of(([x, topi.nn.lrn(x, 5, 1, 1e-4, 0.75, 2.0)], [])))
    assert ("T.parallel" in made.script()) == (channels == "many")


def test_weights_are_packed_in_the_order_of_tiles():
    module = module_of(depthwise())
    main = build_kernel(scheduled(module, WindowTile(1, 8, 8, 2)), TARGET).module["main"]
    assert [int(d) for d in main.params[1].shape] == [3, 3, 3, 1, 8]


def test_a_record_gives_the_schedule_again():
    module = module_of(pool("max"))
    document = dump(WINDOW, WINDOW.fill(found_in(Schedule(module)), WIDE))
    again = replay_setting(module, WINDOW, json.loads(document), WIDE)
    assert_same(module, again.mod, inputs=[normal], rtol=0.0)
