"""Indices along several axes, as in the examples of the docstrings."""

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.expressions import unravel_index, write_element_loops
from tests.schedules.loops import extents


def test_an_index_along_several_axes_is_taken_apart():
    assert unravel_index((3, 4), 7) == [1, 3]  # type: ignore[arg-type]
    assert unravel_index((7, 9), 20) == [2, 2]  # type: ignore[arg-type]
    assert unravel_index((2, 3, 4), 23) == [1, 2, 3]  # type: ignore[arg-type]


def test_elements_that_fill_no_vector_are_left_to_shorter_ones():
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        for index in write_element_loops(23, 8, "int32"):
            T.evaluate(index)
    assert extents(builder.get().script()) == [2, 8, 4, 2, 1]
