"""Conditions and clamps divide the last axis of a block."""

from tvm import te, tirx

from autopipe.api.compute import to_declared_module
from autopipe.schedules.analysis.movement import match_movement
from autopipe.schedules.primitives import make_schedule
from tests.support.table import each_row

ROWS, COLUMNS = 40, 64


def clamp(index, size):
    return te.max(te.min(index, size - 1), 0)


def reflect(index, size):
    inside = te.max(index, -index)
    return te.min(inside, 2 * (size - 1) - inside)


@each_row(
    "value, parts",
    [
        (lambda x, i, j: x[i, j], ()),
        (lambda x, i, j: x[i, clamp(j - 1, COLUMNS)], (1, 63)),
        (lambda x, i, j: x[clamp(i + 2, ROWS), clamp(j + 3, COLUMNS)], (61, 3)),
        (lambda x, i, j: x[i, clamp(2 * j - 5, COLUMNS)], (3, 32, 29)),
        (lambda x, i, j: x[i, clamp(20 - j, COLUMNS)], (21, 43)),
        (lambda x, i, j: x[i, reflect(j - 2, COLUMNS)], (2, 62)),
        (lambda x, i, j: x[i, clamp(j - i, COLUMNS)], ()),
        (lambda x, i, j: te.max(x[i, j], 0.5), ()),
        (lambda x, i, j: tirx.if_then_else(3 * j >= 30, x[i, j], 0.0), (10, 54)),
    ],
)
def test_the_last_axis_is_divided_where_an_outcome_changes(value, parts):
    x = te.placeholder((ROWS, COLUMNS), name="x")
    y = te.compute((ROWS, COLUMNS), lambda i, j: value(x, i, j) * 2.0)
    found = match_movement(make_schedule(to_declared_module([x, y])))
    assert found is not None
    assert found.parts == parts
