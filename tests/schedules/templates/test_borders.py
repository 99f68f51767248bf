"""Loops over pixels of few channels, with a border around them."""

import pytest
import tvm
from tvm import te, tirx

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.measure.check import checked
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates import elementwise
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from tests.support import here

ROWS, WIDTH, COLORS = 40, 230, 3


def bordered(border, colors=COLORS, *, rows=ROWS):
    """Return the move of planes to pixels with a border, as an image in bytes gets it."""
    x = te.placeholder((colors, rows, WIDTH - 2 * border), name="x")
    y = te.compute(
        (rows, WIDTH, colors),
        lambda i, j, c: tirx.if_then_else(
            tirx.all(j >= border, j < WIDTH - border), x[c, i, j - border] * 2.0, 7.0
        ),
        name="y",
    )
    return tvm.IRModule({"main": te.create_prim_func([x, y]).with_attr("global_symbol", "main")})


def scheduled(module):
    sch = make_schedule(module)
    found = ELEMENTWISE.match(sch)
    assert found is not None
    ELEMENTWISE.apply(sch, found, elementwise.Run(1))
    return sch.mod


@pytest.mark.parametrize("border", [1, 3, 100])
def test_a_border_beside_short_pixels_leaves_vectors_between(border):
    module = bordered(border)
    made = scheduled(module)
    checked(module, made, here.target())
    code = compile_kernel(made, here.target()).inspect_source("ll")
    assert "x float>" in code, "vectors"


def test_a_condition_on_two_axes_is_computed_right():
    x = te.placeholder((ROWS, WIDTH, COLORS), name="x")
    y = te.compute(
        (ROWS, WIDTH, COLORS),
        lambda i, j, c: tirx.if_then_else(j < i + 5, x[i, j, c], 0.0),
        name="y",
    )
    module = tvm.IRModule({"main": te.create_prim_func([x, y]).with_attr("global_symbol", "main")})
    made = scheduled(module)
    checked(module, made, here.target())


def test_a_last_axis_of_two_runs_leaves_the_one_before_whole():
    """Then the loop around the unrolled one is not that of the axis before."""
    x, z = te.placeholder((ROWS, WIDTH, 4), name="x"), te.placeholder((ROWS, WIDTH, 4), name="z")
    y = te.compute(
        (ROWS, WIDTH, 8),
        lambda i, j, c: tirx.if_then_else(
            tirx.all(j >= 3, j < WIDTH), tirx.if_then_else(c < 4, x[i, j, c], z[i, j, c - 4]), 0.0
        ),
        name="y",
    )
    module = tvm.IRModule(
        {"main": te.create_prim_func([x, z, y]).with_attr("global_symbol", "main")}
    )
    made = scheduled(module)
    checked(module, made, here.target())


def test_rows_of_short_pixels_without_more_rows_stay_whole():
    module = bordered(3, rows=1)
    made = scheduled(module)
    checked(module, made, here.target())
