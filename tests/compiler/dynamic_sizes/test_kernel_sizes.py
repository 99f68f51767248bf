"""Extents at dynamic sizes."""

import pytest
from tvm import te, tirx

from autopipe.compiler.dynamic_sizes.kernel_sizes import evaluate_extent

N, M = te.var("n", "int64"), te.var("m", "int64")


@pytest.mark.parametrize(
    ("extent", "value"),
    [
        (28, 28),
        (tirx.IntImm("int64", 28), 28),
        (N * 8 + M - 2, 45),
        (tirx.floordiv(N * 8 - 1, 4), 9),
        (tirx.floormod(N, 3), 2),
        (tirx.max(N, M), 7),
        (tirx.min(N, M) * 4, 20),
        (N.astype("int32"), 5),
        (tirx.floordiv(N, M - 7), None),
        (N + te.var("k", "int64"), None),
        (tirx.Select(N < 3, N, M), None),
    ],
)
def test_an_extent_is_evaluated_by_integer_arithmetic_alone(extent, value):
    assert evaluate_extent(extent, {"n": 5, "m": 7}) == value
