"""Conditions that always hold are left out, and no others."""

import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

from autopipe.schedules.analysis.simple_indices import simplify_block
from tests.schedules.computed import assert_same, normal


def spread(ahead):
    """Return x[i // 2] where a window that begins `ahead` rows later has begun already."""
    x = te.placeholder((14,), name="x")

    def value(i):
        first = tirx.Select(i < 2, tirx.const(0), tirx.truncdiv(i - 2, tirx.const(2)) + 1)
        inside = tirx.all(first + ahead <= tirx.truncdiv(i, tirx.const(2)), i >= 0)
        return tirx.if_then_else(inside, x[tirx.truncdiv(i, tirx.const(2))], tirx.const(7.0))

    return tvm.IRModule({"main": te.create_prim_func([x, te.compute((28,), value, name="y")])})


@pytest.mark.parametrize(("ahead", "known"), [(0, True), (1, False)])
def test_a_window_that_begins_by_division_has_begun(ahead, known):
    module = spread(ahead)
    sch = Schedule(module)
    simplify_block(sch, sch.get_sblock("y"))
    text = sch.mod.script()
    assert ("if_then_else" not in text) == known
    assert ("Select" not in text) == known
    assert_same(module, sch.mod, inputs=[normal], rtol=0)


def test_what_holds_for_most_rows_is_asked():
    x = te.placeholder((10,), name="x")
    y = te.compute(
        (40,), lambda i: tirx.if_then_else(tirx.floordiv(i, 4) < 9, x[i // 4], 0.0), name="y"
    )
    module = tvm.IRModule({"main": te.create_prim_func([x, y])})
    sch = Schedule(module)
    simplify_block(sch, sch.get_sblock("y"))
    assert "if_then_else" in sch.mod.script()
