import itertools
import json
import random

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, topi
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.errors import StageError
from autopipe.measure import build, check
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import static
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.dot_product import DOT_PRODUCT
from tests.schedules import emulated
from tests.schedules.computed import assert_same
from tests.schedules.tasks import CONDITIONS

SIGNS = list(itertools.product(("uint8", "int8"), repeat=2))
VNNI, AVX2, ANY = "cascadelake", "haswell", "x86-64"
BF16, SHORT = "znver4", "bfloat16"


def conditions(mcpu, **target):
    made = tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": 2, **target})
    return Conditions(made, HardwareParams.of(made))


def matmul(signs=("uint8", "int8"), *, rows=6, depth=24, columns=48, transposed=False):
    x = te.placeholder((rows, depth), signs[0], "x")
    w = te.placeholder((columns, depth) if transposed else (depth, columns), signs[1], "w")
    k = te.reduce_axis((0, depth), "k")

    def product(i, j):
        weight = w[j, k] if transposed else w[k, j]
        return te.sum(x[i, k].astype("int32") * weight.astype("int32"), k)

    return [x, w], te.compute((rows, columns), product, "product"), [1]


def batched(signs=("uint8", "int8")):
    x, y = te.placeholder((3, 6, 8), signs[0]), te.placeholder((3, 8, 16), signs[1])
    return [x, y], topi.nn.batch_matmul(x, y, oshape=None, out_dtype="int32", transpose_b=False), []


def conv(signs=("uint8", "int8"), *, stride=1, kernel=3, channels=8, columns=32):
    x = te.placeholder((1, 7, 7, channels), signs[0], "x")
    w = te.placeholder((kernel, kernel, channels, columns), signs[1], "w")
    pad = kernel // 2
    return [x, w], topi.nn.conv2d_nhwc(x, w, stride, pad, 1, "int32"), [1]


def module_of(inputs, sums, weights, epilogue=None):
    others, result = epilogue(sums) if epilogue else ([], sums)
    function = te.create_prim_func([*inputs, *others, result])
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", weights)})


def requantized(sums):
    """Bias, scale, activation and rounding back to bytes, as a quantized layer ends."""
    bias = te.placeholder((sums.shape[-1],), "int32", "bias")
    scaled = topi.multiply(topi.cast(topi.add(sums, bias), "float32"), te.const(0.01, "float32"))
    rounded = topi.cast(topi.round(topi.clip(scaled, 0.0, 255.0)), "uint8")
    return [bias], rounded


def residual(sums):
    """Another result of the same shape added in float32."""
    other = te.placeholder(sums.shape, "float32", "other")
    return [other], topi.nn.relu(topi.add(topi.cast(sums, "float32"), other))


def bytes_of(module):
    """Return arguments of `main`: bytes of every size, both ends of their range among them."""
    generator = np.random.default_rng(0)
    arrays = []
    for each in module["main"].params:
        shape, dtype = [int(extent) for extent in each.shape], np.dtype(str(each.dtype))
        if dtype.kind == "f":
            arrays.append(generator.standard_normal(shape).astype(dtype))
            continue
        low, high = (-128, 127) if dtype != np.uint8 else (0, 255)
        drawn = generator.integers(low, high, shape, dtype=dtype, endpoint=True)
        drawn[generator.random(shape) < 0.3] = high
        drawn[generator.random(shape) < 0.3] = low
        arrays.append(drawn)
    return list(map(tvm.runtime.tensor, arrays))


def assert_exact(module, *scheduled, target):
    assert_same(module, *scheduled, inputs=[bytes_of], rtol=0.0, target=target)


CASES = {
    "transposed": lambda: matmul(transposed=True),
    "one_row": lambda: matmul(rows=1),
    "narrow": lambda: matmul(columns=12),
    "odd_rows": lambda: matmul(rows=13, depth=4, columns=40),
    "overlapping": lambda: matmul(rows=29, columns=168),
    "pairs_only": lambda: matmul(depth=26),
    "batched": batched,
    "packed_by_each_call": lambda: (
        *matmul(("int8", "int8"), rows=64, depth=64, columns=64)[:2],
        [],
    ),
    "strided": lambda: conv(stride=2),
    "pointwise": lambda: conv(kernel=1),
    "requantized": lambda: (*conv(), requantized),
    "residual": lambda: (*matmul(), residual),
}


def planned(module, made):
    found = static.plan(module, made)
    assert found is not None
    return found


def served(module, made):
    found = planned(module, made)
    return DOT_PRODUCT.name in found.schedule, found.module


@pytest.mark.parametrize("signs", SIGNS, ids="-".join)
@pytest.mark.parametrize("mcpu", [VNNI, AVX2])
@pytest.mark.parametrize("case", [matmul, conv])
def test_sums_are_exact_for_all_signs(case, mcpu, signs):
    module, made = module_of(*case(signs)), conditions(mcpu)
    ours, scheduled = served(module, made)
    assert ours
    assert_exact(module, scheduled, target=made.target)


@pytest.mark.parametrize("mcpu", [VNNI, ANY])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_exact(case, mcpu):
    module, made = module_of(*CASES[case]()), conditions(mcpu)
    ours, scheduled = served(module, made)
    assert ours
    assert_exact(module, scheduled, target=made.target)


@pytest.mark.parametrize("case", [matmul(depth=25), conv(channels=3)])
def test_odd_extents_are_for_another_template(case):
    module = module_of(*case)
    ours, scheduled = served(module, CONDITIONS)
    assert not ours
    assert_exact(module, scheduled, target=CONDITIONS.target)


@pytest.mark.parametrize(
    ("mcpu", "mnemonic", "target"),
    [
        (VNNI, "vpdpbusd", {}),
        (AVX2, "vpmaddwd", {}),
        (ANY, "pmaddwd", {}),
        ("alderlake", "vpdpbusd", {}),
        ("cortex-a76", "sdot", {"mtriple": "aarch64-linux-gnu"}),
        ("neoverse-v1", "usdot", {"mtriple": "aarch64-linux-gnu"}),
    ],
)
def test_the_instruction_of_the_processor_is_used(mcpu, mnemonic, target):
    made = conditions(mcpu, **target)
    ours, scheduled = served(module_of(*matmul()), made)
    assert ours
    assembly = tvm.tirx.build(scheduled, made.target).inspect_source("asm")
    assert f"\t{mnemonic}\t" in assembly


def short_matmul(*, rows=6, depth=24, columns=48, rounded=True):
    """A product by rounded weights; the kernel rounds the rows itself, unless they come rounded."""
    x = te.placeholder((rows, depth), "float32" if rounded else SHORT, "x")
    w = te.placeholder((depth, columns), SHORT, "w")
    row, k = topi.cast(x, SHORT) if rounded else x, te.reduce_axis((0, depth), "k")

    def product(i, j):
        return te.sum(row[i, k].astype("float32") * w[k, j].astype("float32"), k)

    return [x, w], te.compute((rows, columns), product, "product"), [1]


def short_conv(**fields):
    x, w = te.placeholder((1, 7, 7, 8), SHORT, "x"), te.placeholder((3, 3, 8, 32), SHORT, "w")
    return [x, w], topi.nn.conv2d_nhwc(x, w, 1, 1, 1, "float32"), [1]


def rounded_again(sums):
    """A residual and an activation, and rounded for the next layer."""
    other = te.placeholder(sums.shape, "float32", "other")
    return [other], topi.cast(topi.nn.relu(topi.add(sums, other)), SHORT)


@pytest.mark.parametrize(
    ("case", "lanes"),
    [
        (short_matmul(), 16),
        (short_matmul(rounded=False, rows=1, columns=40), 16),
        (short_matmul(columns=8), 8),
        (short_matmul(columns=4), 4),
        (short_conv(), 16),
        ((*short_conv(), rounded_again), 16),
    ],
)
def test_pairs_of_bfloat16_are_added_in_float32(case, lanes, monkeypatch):
    module, made = module_of(*case), conditions(BF16)
    found = planned(module, made)
    knobs = json.loads(found.schedule)["knobs"]
    assert (knobs["instruction"], knobs["width"]) == ("vdpbf16ps", lanes)
    assembly = compile_kernel(found.module, made.target).inspect_source("asm")
    assert assembly.count("\tvdpbf16ps\t") > 1
    monkeypatch.setattr(build, "compile_kernel", emulated.kernel)
    check.checked(module, found.module, made.target)


def test_products_of_bfloat16_are_for_processors_that_have_them():
    ours, _ = served(module_of(*short_matmul()), conditions(VNNI))
    assert not ours


def test_a_processor_without_one_gets_another_template():
    made = conditions("cortex-a53", mtriple="aarch64-linux-gnu")
    ours, _ = served(module_of(*matmul()), made)
    assert not ours


@pytest.mark.parametrize("case", [conv(), conv(kernel=1, columns=24), conv(columns=72)])
def test_settings_are_exact(case):
    inputs, sums, weights = case
    module, made = module_of(inputs, sums, weights, requantized), conditions(VNNI)
    found = DOT_PRODUCT.match(Schedule(module))
    assert found is not None
    every = list(DOT_PRODUCT.settings(found, made.hardware))
    assert len(set(every)) == len(every)
    assert DOT_PRODUCT.fill(found, made.hardware) in every
    scheduled: list[tvm.IRModule] = []
    for knobs in random.Random(0).sample(every, 6):
        sch = make_schedule(module)
        DOT_PRODUCT.apply(sch, found, knobs)
        scheduled.append(sch.mod)
    assert_exact(module, *scheduled, target=made.target)


def test_settings_fit_the_registers_and_no_vector_is_empty():
    found = DOT_PRODUCT.match(Schedule(module_of(*conv(columns=40))))
    assert found is not None
    hardware = conditions(VNNI).hardware
    tiles = list(DOT_PRODUCT.settings(found, hardware))
    assert {16, 48} <= {tile.columns for tile in tiles}
    for tile in tiles:
        assert (tile.rows + 1) * (tile.columns // tile.width) + 1 <= hardware.registers
        assert tile.rows <= found.sums.height
        assert tile.columns - tile.width < found.sums.breadth


@pytest.mark.parametrize("columns", [24, 104, 1000])
def test_columns_that_no_vector_divides_have_whole_vectors(columns):
    """1000 channels were summed in vectors of 8 of 16, which took twice the time."""
    found = DOT_PRODUCT.match(Schedule(module_of(*conv(kernel=1, columns=columns))))
    assert found is not None
    assert DOT_PRODUCT.fill(found, conditions(VNNI).hardware).width == 16


def test_a_record_makes_the_schedule_again():
    module, made = module_of(*matmul()), conditions(VNNI)
    found = planned(module, made)
    again = replay_schedule(module, found.implementation, found.schedule, made)
    assert tvm_ffi.structural_equal(again, found.module)


def test_a_record_of_another_processor_is_refused():
    module = module_of(*matmul())
    found = planned(module, conditions(VNNI))
    with pytest.raises(StageError, match="no setting"):
        replay_schedule(module, found.implementation, found.schedule, conditions(AVX2))


def float_matmul():
    x, w = te.placeholder((6, 24), "float32"), te.placeholder((24, 48), "float32")
    return [x, w], topi.matmul(x, w), [1]


def grouped():
    x, w = te.placeholder((1, 7, 7, 8), "uint8"), te.placeholder((3, 3, 4, 32), "int8")
    return [x, w], topi.nn.conv(x, w, 1, 1, 1, 2, "NHWC", "HWIO", "int32"), [1]


def channels_first():
    x, w = te.placeholder((1, 8, 7, 7), "uint8"), te.placeholder((32, 8, 3, 3), "int8")
    return [x, w], topi.nn.conv2d_nchw(x, w, 1, 1, 1, "int32"), [1]


@pytest.mark.parametrize("case", [float_matmul, grouped, channels_first])
def test_other_functions_are_for_another_template(case):
    assert DOT_PRODUCT.match(Schedule(module_of(*case()))) is None


def bytes_added(sums):
    """Bytes of another layer, made floats and added, as a residual of a quantized network is."""
    other = te.placeholder(sums.shape, "uint8", "other")
    moved = topi.multiply(topi.cast(other, "float32"), te.const(0.5, "float32"))
    return [other], topi.add(moved, topi.cast(sums, "float32"))


@pytest.mark.parametrize("first", [False, True])
def test_what_is_added_to_sums_is_made_where_it_is_read(first):
    """Graphs often compute it before the sums; it would go through memory."""
    inputs, sums, weights = conv()
    module, made = module_of(inputs, sums, weights, bytes_added), conditions(VNNI)
    if first:
        module = with_sums_last(module)
    ours, scheduled = served(module, made)
    assert ours
    names = {buffer.name for buffer in scheduled["main"].body.block.alloc_buffers}
    assert names == {"pad_temp", "conv2d_nhwc_packed"}
    assert_exact(module, scheduled, target=made.target)


def with_sums_last(module):
    """Return a function with what is made of its last operand before the sums."""
    body = module["main"].body
    *blocks, last = body.block.body
    assert len(blocks) > 2
    moved = [*blocks[2:-1], *blocks[:2], blocks[-1], last]
    block = body.block
    root = SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, tvm.tirx.SeqStmt(moved),
        alloc_buffers=list(block.alloc_buffers),
    )  # fmt: skip
    function = module["main"].with_body(SBlockRealize([], tvm.tirx.const(1, "bool"), root))
    return tvm.IRModule({"main": function})


def test_weights_are_packed_in_the_order_they_are_read():
    _, scheduled = served(module_of(*matmul()), conditions(VNNI))
    (packed,) = scheduled["main"].body.block.alloc_buffers
    assert [int(extent) for extent in packed.ty.shape] == [1, 6, 48 * 4]


def test_each_step_fetches_the_packed_weights_of_a_later_one_a_line_at_a_time():
    _, scheduled = served(module_of(*matmul()), conditions(VNNI))
    assert scheduled.script().count("llvm.prefetch") == 48 * 4 // 64
