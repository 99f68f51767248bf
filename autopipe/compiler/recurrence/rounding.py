"""Rounding of a state to bytes, and what sums of products of bytes stand for."""

from typing import Any, Final

from tvm import tirx
from tvm.ir import Expr

_BYTE: Final = 255.0
"""The largest byte."""


def compute_scale(low: Expr, high: Expr) -> Expr:
    """Return how far apart the numbers are that bytes stand for, in a range around zero."""
    most = tirx.const(_BYTE, low.ty)
    return tirx.Select(high > low, (high - low) / most, tirx.const(1, low.ty))


def compute_zero_point(low: Expr, scale: Expr) -> Expr:
    """Return which byte stands for zero."""
    none, most = tirx.const(0, low.ty), tirx.const(_BYTE, low.ty)
    return tirx.nearbyint(tirx.max(tirx.min(-low / scale, most), none))


def as_byte(value: Expr, scale: Expr, zero: Expr) -> Expr:
    """Return the byte that stands for what is nearest to a number."""
    none, most = tirx.const(0, value.ty), tirx.const(_BYTE, value.ty)
    steps = tirx.nearbyint(value / scale) + zero
    return tirx.max(tirx.min(steps, most), none).astype("int32").astype("uint8")


def dequantize_products(
    products: Expr, heard: tuple[Any, Any], column: tuple[Any, Any, Any]
) -> Expr:
    """Return the sum of products of what bytes stand for, given that of the bytes themselves.

    `heard` is how the state was rounded, as scale and zero point, and the sum of its bytes.
    `column` has scale, zero point and total of a column of weights.
    """
    (span, total), (scale, zero, sums) = heard, column
    whole = products - span[1].astype("int32") * sums - zero * total
    return whole.astype(str(scale.ty)) * (span[0] * scale)
