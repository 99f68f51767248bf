"""Elementwise blocks as rows of memory."""

import tvm
from tvm import te

from autopipe.schedules.flat import flattened
from autopipe.schedules.templates import elementwise
from autopipe.schedules.templates.template import blank
from tests.support import here


def halves(*shape):
    x, scale = te.placeholder(shape, name="x"), te.placeholder(shape[:1], name="scale")
    y = te.compute(shape, lambda i, *at: x(i, *at) * 0.5 + scale[i], name="y")
    return tvm.IRModule(
        {"main": te.create_prim_func([x, scale, y]).with_attr("global_symbol", "main")}
    )


def test_a_vector_that_crosses_the_end_of_an_axis_is_loaded_at_once():
    module = halves(4, 5, 56)
    sch = blank(module)
    found = elementwise.match(sch)
    assert found is not None
    assert found.tail == 2
    elementwise.apply(sch, found, elementwise.Run(16))
    code = tvm.tirx.build(sch.mod, here.target()).inspect_source("ll")
    assert "<16 x float>" in code or "<8 x float>" in code
    assert "insertelement <16 x float>" not in code


def test_the_last_axes_become_one():
    sch = blank(halves(2, 3, 7))
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    made = flattened(sch, block, 2)
    assert [int(sch.get(loop).extent) for loop in sch.get_loops(made)] == [2, 21]
