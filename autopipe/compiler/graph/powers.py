"""Expand powers to products and square roots, which LLVM can vectorize."""

from functools import reduce
from operator import mul
from typing import Final

from tvm import tirx
from tvm.ir import Call, Expr

from autopipe.compiler.graph.arithmetic import SINGLE, build_let, make_float32

_MOST_QUARTERS: Final = 16
"""Largest exponent, in quarters, that is expanded to products and roots."""


def expand_power(call: Call) -> Expr:
    """Expand x^n to products and square roots, to 2 ulp, if n is a small multiple of 1/4.

    Any other power stays as it is. Fractions are expanded in float32 only.
    """
    base, exponent = call.args
    quarters = exponent.value * 4 if isinstance(exponent, tirx.FloatImm) else 0.0
    fits = quarters.is_integer() and 0 < abs(quarters) <= _MOST_QUARTERS
    if not fits or (quarters % 4 and str(call.ty) != SINGLE):
        return call
    unit = tirx.const(1.0, call.ty)

    def product(x: Expr) -> Expr:
        exponent_integer, exponent_quarters = divmod(int(abs(quarters)), 4)
        root = tirx.sqrt(x)
        factors = (
            [x] * exponent_integer
            + [root] * (exponent_quarters >> 1)
            + [tirx.sqrt(root)] * (exponent_quarters & 1)
        )
        return reduce(mul, factors)

    positive = build_let(_fold_negative_ends(base) if quarters % 4 else base, product)
    return positive if quarters > 0 else unit / positive


def _fold_negative_ends(x: Expr) -> Expr:
    """Map -0 to 0 and -infinity to infinity, as a fractional power does."""
    infinity = tirx.infinity(SINGLE)
    return build_let(
        x,
        lambda x: tirx.Select(
            x == make_float32(0.0), make_float32(0.0), tirx.Select(x == -infinity, infinity, x)
        ),
    )


def expand_rsqrt(x: Expr) -> Expr:
    """Expand 1 / sqrt(x) as TVM defines it, in a form that LLVM can vectorize."""
    return make_float32(1.0) / tirx.sqrt(x)
