"""The examples in the docstrings of tiling are true."""

import pytest
from tvm import te, topi
from tvm.s_tir import Schedule

from autopipe.schedules.analysis.product import Product
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.tiling.nest import Nest
from autopipe.schedules.tiling.tile import Tile, list_tiles
from tests.schedules.loops import extents
from tests.schedules.templates.test_contraction import conv, served
from tests.schedules.tensors import module_of

WIDE = HardwareParams(vector_bits=512, registers=32, cores=2)
TILE = Tile(rows=6, columns=32, width=16, packed=True, outer="columns", unroll=1)


def dense():
    """Return the schedule of 112 rows, 64 terms and 96 columns, and what is known of it."""
    x, w = te.placeholder((112, 64), "float32", "x"), te.placeholder((64, 96), "float32", "w")
    sch = Schedule(module_of([x, w, topi.nn.relu(topi.matmul(x, w))], [1]))
    return sch, served(sch)


def test_tiles_are_numbered_as_in_the_example():
    sch, found = dense()
    product = Product.of(sch.get(sch.get_sblock("T_matmul")))
    assert product is not None
    nest = Nest(found, TILE, product, last=None)
    assert (nest.cuts, nest.strips, nest.jobs) == (3, 3, 57)
    assert nest.order == [("columns", 3), ("rows", 19)]


def test_loops_are_those_of_the_example():
    sch, found = dense()
    assert TILE in list_tiles(found, WIDE)
    CONTRACTION.apply(sch, found, TILE)
    script = sch.mod.script()
    assert extents(script) == [3, 64, 32, 57, 6, 2, 16, 64, 1, 6, 2, 16, 6, 2, 16]
    assert "T_matmul_packed = T.sblock_alloc_buffer((3, 64, 32))" in script
    assert "T.min(v_1 * 6, 106)" in script


@pytest.mark.parametrize(
    ("kernel", "copy"), [(1, "(2, 64, 32)"), (3, "(2, 3, 3, 64, 32)")], ids=str
)
def test_weights_of_a_convolution_are_packed_by_strips(kernel, copy):
    sch = Schedule(module_of(*conv((56, 56), (64, 64), kernel=kernel)))
    found = served(sch)
    assert (found.height, found.breadth) == (3136 if kernel == 1 else 56, 64)
    CONTRACTION.apply(sch, found, TILE)
    assert f"conv2d_nhwc_packed = T.sblock_alloc_buffer({copy})" in sch.mod.script()


def test_a_row_of_a_padded_image_is_written_in_three_parts():
    sch = Schedule(module_of(*conv((56, 56), (64, 64))))
    CONTRACTION.apply(sch, served(sch), TILE)
    script = sch.mod.script()
    assert "if v_2 >= 1 and v_2 < 57:" in script
    assert extents(script)[:9] == [58, 4, 16, 224, 16, 4, 16, 232, 16]
