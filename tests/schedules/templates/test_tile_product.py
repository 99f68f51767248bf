"""Sums of bytes in registers of tiles; where this processor has none, they are emulated."""

import math
import random
from dataclasses import replace

import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule, ScheduleError

from autopipe.measure import build, check
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.engines import static
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.tile_product import TILE_PRODUCT
from autopipe.schedules.tiling import tile_blocks
from autopipe.schedules.tiling.tile_blocks import Block
from tests.schedules import emulated
from tests.schedules.templates.test_dot_product import (
    SIGNS,
    VNNI,
    batched,
    channels_first,
    conditions,
    conv,
    float_matmul,
    grouped,
    matmul,
    module_of,
    requantized,
    residual,
    rounded_again,
    short_matmul,
)

AMX = "sapphirerapids"
WIDE = {"channels": 128, "columns": 64}

CASES = {
    "matmul": lambda: matmul(rows=64, depth=64, columns=64),
    "transposed": lambda: matmul(rows=36, depth=128, columns=32, transposed=True),
    "uneven": lambda: matmul(rows=40, depth=72, columns=32),
    "conv": lambda: (*conv(**WIDE), requantized),
    "strided": lambda: (*conv(stride=2, **WIDE), residual),
    "pointwise": lambda: (*conv(kernel=1, **WIDE), requantized),
    "few_channels": lambda: conv(stride=2, kernel=7, channels=4, columns=32),
    "long_steps": lambda: conv(channels=16, columns=32),
    "bfloat16": lambda: (*halves(), rounded_again),
    "bfloat16_matmul": lambda: short_matmul(rows=32, depth=64, columns=32),
    "pointwise_strided": lambda: conv(kernel=1, stride=2, **WIDE),
    "odd_columns": lambda: (*conv(channels=128, columns=40), residual),
    "odd_rows": lambda: (*matmul(rows=27, depth=64, columns=72), residual),
}


@pytest.fixture(autouse=True)
def anywhere(monkeypatch):
    monkeypatch.setattr(build, "compile_kernel", emulated.kernel)


def halves():
    """A convolution of bfloat16."""
    x = te.placeholder((1, 7, 7, 64), "bfloat16", "x")
    w = te.placeholder((3, 3, 64, 32), "bfloat16", "w")
    return [x, w], topi.nn.conv2d_nhwc(x, w, 1, 1, 1, "float32"), [1]


def found_in(module):
    found = TILE_PRODUCT.match(Schedule(module))
    assert found is not None
    return found


def applied(module, found, block):
    sch = make_schedule(module)
    TILE_PRODUCT.apply(sch, found, block)
    return sch.mod


@pytest.mark.parametrize("case", CASES)
def test_it_comes_first_where_there_are_tiles_and_is_exact(case):
    module, made = module_of(*CASES[case]()), conditions(AMX)
    planned = static.plan(module, made)
    assert planned is not None
    assert '"template": "tile_product"' in planned.schedule
    check.checked(module, planned.module, made.target)


@pytest.mark.parametrize("signs", SIGNS, ids="-".join)
def test_bytes_of_all_signs_are_exact(signs):
    module, made = module_of(*matmul(signs, rows=48, columns=32)), conditions(AMX)
    found = found_in(module)
    check.checked(module, applied(module, found, Block(1, 16, 2)), made.target)


@pytest.mark.parametrize("case", ["conv", "strided", "pointwise", "long_steps", "bfloat16"])
def test_settings_are_exact(case):
    module, made = module_of(*CASES[case]()), conditions(AMX)
    found = found_in(module)
    every = list(TILE_PRODUCT.settings(found, made.hardware))
    assert len(set(every)) == len(every)
    assert TILE_PRODUCT.fill(found, made.hardware) in every
    flat = [block for block in every if block.flat]
    for block in {*random.Random(0).sample(every, 4), *flat}:
        check.checked(module, applied(module, found, block), made.target)


def test_cores_share_rows_where_these_are_more_than_weights():
    sizes = [{"rows": 512, "depth": 64, "columns": 64}, {"rows": 64, "depth": 512, "columns": 64}]
    found = [found_in(module_of(*matmul(**size))) for size in sizes]
    hardware = conditions(AMX).hardware
    assert [TILE_PRODUCT.fill(each, hardware).outer for each in found] == ["rows", "columns"]


@pytest.mark.parametrize(("rows", "fetched"), [(16, True), (4096, False)])
def test_weights_that_come_from_far_are_fetched_four_kib_ahead(rows, fetched):
    """A step takes 64 bytes of a row and KiB of weights; 4096 rows take the same ones often."""
    module, made = module_of(*matmul(rows=rows, depth=512, columns=128)), conditions(AMX)
    found = found_in(module)
    block = TILE_PRODUCT.fill(found, made.hardware)
    assert block.ahead * block.vectors == (4 if fetched else 0)
    written = applied(module, found, block)
    lines = [line for line in written.script().splitlines() if "llvm.prefetch" in line]
    assert len(lines) == (16 * block.vectors if fetched else 0)
    places = [f" * 16 + {16 * block.ahead + at % 16}, " for at in range(len(lines))]
    assert all(place in line for place, line in zip(places, lines, strict=True))
    check.checked(module, written, made.target)


@pytest.mark.parametrize("block", [
    Block(1, 7, 2), Block(1, 1, 2), Block(7, 7, 1, flat=True), Block(1, 7, 1, outer="rows"),
])  # fmt: skip
def test_chains_of_all_lengths_are_exact(block):
    module, made = module_of(*CASES["odd_columns"]()), conditions(AMX)
    found = found_in(module)
    blocks = math.prod(tile_blocks.count_blocks(found, block))
    for chain in list_divisors(blocks, blocks):
        check.checked(module, applied(module, found, replace(block, chain=chain)), made.target)
    with pytest.raises(ScheduleError, match="no whole chains"):
        applied(module, found, replace(block, chain=blocks + 1))


def test_results_stand_between_the_products_of_the_next_block():
    """A line of seven pixels has nine steps: a row of results behind the products of seven."""
    inputs, sums, weights = conv(channels=64, columns=32)
    module, made = module_of(inputs, sums, weights, requantized), conditions(AMX)
    written = applied(module, found_in(module), Block(1, 7, 2, chain=7))
    step = written.script().partition("T.grid(3, 3, 1)")[2].partition("tilestored64")[0]
    products, condition, results = step.partition("+ v_4 < 7:")
    assert products.count("tdpbusd") == 2
    assert condition
    assert results.startswith("\n" + " " * 28 + "for v_5, v_6 in T.grid(1, 1):")
    assert results.count("nearbyint") == 1
    check.checked(module, written, made.target)


def test_a_step_of_much_work_has_a_piece_behind_each_product():
    inputs, sums, weights = conv(kernel=1, **WIDE)
    module, made = module_of(inputs, sums, weights, requantized), conditions(AMX)
    written = applied(module, found_in(module), Block(7, 7, 1, flat=True, chain=4))
    step = written.script().partition("T.grid(1, 1, 2)")[2].partition("tilestored64")[0]
    parts = [part.count("nearbyint") for part in step.split("tdpbusd")]
    assert parts == [0, 1, 1, 1, 1]
    check.checked(module, written, made.target)


@pytest.mark.parametrize("outer", ["rows", "columns"])
def test_both_orders_of_blocks_write_all_of_them(outer):
    module, made = module_of(*CASES["pointwise"]()), conditions(AMX)
    found = found_in(module)
    block = replace(TILE_PRODUCT.fill(found, made.hardware), lines=1, vectors=1, flat=False)
    check.checked(module, applied(module, found, replace(block, outer=outer)), made.target)


def test_a_second_thread_is_told_of_its_registers_for_work_that_pays():
    some = {"little": conv(**WIDE), "much": matmul(rows=2048, depth=256, columns=64)}
    made = conditions(AMX)
    for name, tensors in some.items():
        module = module_of(*tensors)
        found = found_in(module)
        loops = applied(module, found, TILE_PRODUCT.fill(found, made.hardware)).script()
        assert ("T.parallel" in loops.partition("tilezero")[0]) == (name == "much")


def test_seven_lines_of_seven_pixels_are_flat():
    """A line alone would fill 7 rows of 16; all of them with what pads them are 61."""
    found = found_in(module_of(*conv(**WIDE)))
    made = TILE_PRODUCT.fill(found, conditions(AMX).hardware)
    assert replace(made, ahead=0, chain=1, threads=True) == Block(7, 7, 1, flat=True)


@pytest.mark.parametrize("wrong", [
    {"given": ((0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 0, 0, 0))},
    {"given": ((0, 0, 0, 0), (1, 0, 1, 0), (0, 2, 0, 1), (0, 0, 0, 0))},
    {"weights": ((0, 1), (1, 0))},
    {"reduced": (3, 2)},
])  # fmt: skip
def test_a_wrong_tile_is_caught(wrong):
    module, made = module_of(*conv(**WIDE)), conditions(AMX)
    found = found_in(module)
    check.checked(module, applied(module, found, Block(1, 7, 2)), made.target)
    scheduled = applied(module, replace(found, **wrong), Block(1, 7, 2))
    with pytest.raises(check.WrongAnswer, match="off by"):
        check.checked(module, scheduled, made.target)


@pytest.mark.parametrize(
    "case",
    [
        matmul(rows=1, depth=64, columns=64),
        matmul(rows=64, depth=26),
        matmul(columns=40),
        batched(),
    ],
)
def test_few_rows_and_odd_extents_are_for_vectors(case):
    planned = static.plan(module_of(*case), conditions(AMX))
    assert planned is not None
    assert '"template": "tile_product"' not in planned.schedule


def test_a_processor_without_tiles_has_no_setting():
    found = found_in(module_of(*CASES["conv"]()))
    assert not list(TILE_PRODUCT.settings(found, conditions(VNNI).hardware))
    assert not list(TILE_PRODUCT.settings(found, conditions(AMX, mattr=["-amx-int8"]).hardware))


def test_a_square_result_that_is_turned_is_right():
    inputs, sums, weights = matmul(rows=64, depth=64, columns=64)
    turned = te.compute(sums.shape, lambda i, j: sums[j, i] * 2, "turned")
    module, made = module_of(inputs, sums, weights, lambda _: ([], turned)), conditions(AMX)
    found = found_in(module)
    block = TILE_PRODUCT.fill(found, made.hardware)
    check.checked(module, applied(module, found, block), made.target)


def test_sums_that_are_an_output_too_are_refused():
    inputs, sums, _ = matmul(rows=64, depth=64, columns=64)
    twice = te.compute(sums.shape, lambda i, j: sums[i, j] * 2, "twice")
    module = tvm.IRModule({"main": te.create_prim_func([*inputs, sums, twice])})
    found = found_in(module)
    with pytest.raises(ScheduleError, match="an output too"):
        applied(module, found, TILE_PRODUCT.fill(found, conditions(AMX).hardware))


@pytest.mark.parametrize("case", [float_matmul, grouped, channels_first])
def test_other_functions_are_for_another_template(case):
    assert TILE_PRODUCT.match(Schedule(module_of(*case()))) is None
