"""Elementwise blocks as rows of memory."""

import tvm
from tvm import te, topi

from autopipe.measure.check import checked
from autopipe.schedules.analysis.rewritten_axes import collapse_last_axes
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates import elementwise
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from tests.support import here


def halves(*shape):
    x, scale = te.placeholder(shape, name="x"), te.placeholder(shape[:1], name="scale")
    y = te.compute(shape, lambda i, *at: x(i, *at) * 0.5 + scale[i], name="y")
    return tvm.IRModule(
        {"main": te.create_prim_func([x, scale, y]).with_attr("global_symbol", "main")}
    )


def test_a_vector_that_crosses_the_end_of_an_axis_is_loaded_at_once():
    module = halves(4, 5, 56)
    sch = make_schedule(module)
    found = ELEMENTWISE.match(sch)
    assert found is not None
    assert found.tail == 2
    ELEMENTWISE.apply(sch, found, elementwise.Run(16))
    code = tvm.tirx.build(sch.mod, here.target()).inspect_source("ll")
    assert "<16 x float>" in code or "<8 x float>" in code
    assert "insertelement <16 x float>" not in code


def test_the_last_axes_become_one():
    sch = make_schedule(halves(2, 3, 7))
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    made = collapse_last_axes(sch, block, 2)
    assert [int(sch.get(loop).extent) for loop in sch.get_loops(made)] == [2, 21]


def test_an_image_that_is_rolled_along_both_sides_is_read_where_it_lies():
    """As between layers of a Swin transformer: windows of 3 x 3 are put back, and move by 1."""
    windows = te.placeholder((4, 9, 16), name="windows")
    apart = topi.reshape(windows, (1, 2, 2, 3, 3, 16))
    image = topi.reshape(topi.transpose(apart, (0, 1, 3, 2, 4, 5)), (1, 6, 6, 16))
    for axis in (1, 2):
        whole = [0, 0, 0, 0], [1, 6, 6, 16]
        cut = [list(side) for side in whole]
        cut[0][axis] = 5
        last = topi.strided_slice(image, *cut, [1] * 4)
        cut = [list(side) for side in whole]
        cut[1][axis] = 5
        image = topi.concatenate([last, topi.strided_slice(image, *cut, [1] * 4)], axis)
    row = topi.reshape(image, (1, 36, 16))
    module = tvm.IRModule(
        {"main": te.create_prim_func([windows, row]).with_attr("global_symbol", "main")}
    )
    sch = make_schedule(module)
    found = ELEMENTWISE.match(sch)
    assert found is not None
    ELEMENTWISE.apply(sch, found, elementwise.Run(8))
    checked(module, sch.mod, here.target())
