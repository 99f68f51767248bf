"""Conditions on dynamic sizes that no rule proves are evaluated for all sizes."""

from tvm import tirx

from autopipe.compiler.frontends.onnx.dynamic_sizes.enumerate_sizes import decide_condition
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.config.dimension import Dimension
from tests.support.table import each_row

X, Y, FOUND = (tirx.Var(name, "int64") for name in ("x", "y", "found.rows"))
ZERO = tirx.IntImm("int64", 0)
RANGES = {"x": (1, 512), "y": (0, 7)}


@each_row(
    "condition, answer",
    [
        (X // 2 <= X, True), (X // 2 >= X, False), (tirx.EQ(X % 2, ZERO), None),
        (tirx.max(X // 2 * 2 - X // 2, Y) >= Y, True), (tirx.Not(X < Y), None),
        (tirx.EQ(FOUND // 2, FOUND), None), (X // Y > Y, None),
    ],
)  # fmt: skip
def test_a_condition_is_evaluated_for_all_sizes(condition, answer):
    assert decide_condition(condition, RANGES) is answer


def test_too_many_sizes_are_not_enumerated():
    assert decide_condition(X // 2 <= X, {"x": (1, 2**31)}) is None


def test_half_a_size_is_no_more_than_the_whole():
    extents = Extents({"x": X}, {"x": Dimension(max=512, likely=(8,))})
    half = extents.simple(tirx.min(X // 2, X))
    assert extents.equal(half, X // 2)
    rest = extents.simple(tirx.max(X // 2 * 2 - half, ZERO))
    assert extents.equal(rest, half)
