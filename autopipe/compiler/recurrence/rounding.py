"""Quantization of a state to uint8, and dequantization of sums of products."""

from typing import Any, Final

from tvm import tirx
from tvm.ir import Expr

_BYTE: Final = 255.0
"""The largest uint8."""


def compute_scale(low: Expr, high: Expr) -> Expr:
    """Compute the quantization scale of a range around zero."""
    most = tirx.const(_BYTE, low.ty)
    return tirx.Select(high > low, (high - low) / most, tirx.const(1, low.ty))


def compute_zero_point(low: Expr, scale: Expr) -> Expr:
    """Compute the zero point of a range."""
    none, most = tirx.const(0, low.ty), tirx.const(_BYTE, low.ty)
    return tirx.nearbyint(tirx.max(tirx.min(-low / scale, most), none))


def as_byte(value: Expr, scale: Expr, zero: Expr) -> Expr:
    """Quantize a float to uint8."""
    none, most = tirx.const(0, value.ty), tirx.const(_BYTE, value.ty)
    steps = tirx.nearbyint(value / scale) + zero
    return tirx.max(tirx.min(steps, most), none).astype("int32").astype("uint8")


def dequantize_products(
    products: Expr, quantized_state: tuple[Any, Any], column: tuple[Any, Any, Any]
) -> Expr:
    """Dequantize a sum of products of uint8 states and int8 weights.

    `quantized_state` is (scale and zero point of the state, sum of its bytes). `column` is (scale,
    zero point, sum) of a column of weights.
    """
    (span, total), (scale, zero, sums) = quantized_state, column
    products_sum = products - span[1].astype("int32") * sums - zero * total
    return products_sum.astype(str(scale.ty)) * (span[0] * scale)
