"""The examples in the docstrings of templates are true."""

from tvm import te, topi
from tvm.s_tir import Schedule

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.dot_product import DOT_PRODUCT
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from autopipe.schedules.templates.sequence import SEQUENCE
from autopipe.schedules.templates.transpose import TRANSPOSE
from autopipe.schedules.templates.window import WINDOW
from tests.schedules.loops import extents
from tests.schedules.tensors import module_of, tensor

WIDE = HardwareParams(
    vector_bits=512, registers=32, cores=2, features=frozenset({"avx512vnni", "avx512bw", "sse2"})
)


def scheduled(template, tensors, free=()):
    """Return what a template says of a function, its knobs, and the script of its schedule."""
    sch = Schedule(module_of(tensors, list(free)))
    found = template.match(sch)
    knobs = template.fill(found, WIDE)
    template.apply(sch, found, knobs)
    return found, knobs, sch.mod.script()


def test_a_concatenation_is_written_in_parts_without_conditions():
    x, y = tensor(4, 32), tensor(4, 64)
    found, knobs, script = scheduled(ELEMENTWISE, [x, y, topi.concatenate([x, y], 1)])
    assert (found.parts, knobs.width) == ((32, 64), 32)
    assert extents(script) == [4, 3, 1, 32]
    assert "in T.unroll(3)" in script


def test_a_transpose_is_written_in_blocks_of_columns():
    x = tensor(66049, 21)
    found, knobs, script = scheduled(TRANSPOSE, [x, topi.transpose(x)])
    assert (found.rows, found.columns) == (66049, 21)
    assert (knobs.width, knobs.columns, knobs.down, knobs.across) == (16, 4, 2, 6)
    assert extents(script)[:3] == [2065, 6, 2]


def test_three_channels_are_unrolled_in_a_change_of_layout():
    x = tensor(1, 224, 224, 3)
    _, _, script = scheduled(TRANSPOSE, [x, topi.transpose(x, (0, 3, 1, 2))])
    assert extents(script)[0] == 25
    assert "in T.unroll(3)" in script


def test_windows_read_each_row_of_the_input_once():
    x, w = tensor(1, 56, 56, 96), tensor(3, 3, 96, 1)
    y = topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)
    _, knobs, script = scheduled(WINDOW, [x, w, y], [1])
    assert (knobs.rows, knobs.columns, knobs.width) == (4, 32, 16)
    assert "_global = T.sblock_alloc_buffer((3, 3, 3, 1, 32))" in script
    tiles, sums, line, steps = [56, 3, 14], [4, 2, 16], [6, 2, 16], [3, 4, 2, 16]
    loops = [extent for extent in extents(script)[4:] if extent > 1]
    assert loops == [*tiles, *sums, 3, *line, *steps, *sums]


def test_four_products_of_bytes_are_summed_by_an_instruction():
    x, w = tensor(28, 64, dtype="uint8"), tensor(64, 32, dtype="int8")
    k = te.reduce_axis((0, 64))
    y = te.compute(
        (28, 32), lambda i, j: te.sum(x[i, k].astype("int32") * w[k, j].astype("int32"), k)
    )
    _, knobs, script = scheduled(DOT_PRODUCT, [x, w, y], [1])
    assert (knobs.rows, knobs.columns, knobs.instruction) == (14, 32, "vpdpbusd")
    assert 'T.sblock_alloc_buffer((1, 16, 128), "int8")' in script
    loops = [extent for extent in extents(script) if extent > 1]
    assert loops == [16, 128, 2, 14, 2, 16, 16, 14, 2, 14, 2, 16]


def test_two_convolutions_are_two_parts():
    x, first = tensor(1, 8, 8, 4), tensor(3, 3, 4, 4)
    second, other = tensor(3, 3, 4, 4), tensor(1, 8, 8, 4)
    y = topi.nn.relu(topi.nn.conv2d_nhwc(x, first, 1, 1, 1))
    y = topi.nn.relu(topi.add(topi.nn.conv2d_nhwc(y, second, 1, 1, 1), other))
    found, _, _ = scheduled(SEQUENCE, [x, first, second, other, y], [1, 2])
    assert len(found.steps.blocks) == 7
    assert [part.template.name for part in found.parts] == ["contraction", "contraction"]
    schedules = [Schedule(part.module) for part in found.parts]
    blocks = [sch.get_child_blocks(sch.get_sblock("root")) for sch in schedules]
    assert list(map(len, blocks)) == [3, 4]
