"""Powers as products and square roots, since LLVM can turn these into vector instructions."""

from functools import reduce
from operator import mul
from typing import Final

from tvm import tirx
from tvm.ir import Call, Expr

from autopipe.compiler.graph.arithmetic import SINGLE, build_let, make_float32

_MOST_QUARTERS: Final = 16
"""Largest exponent, in quarters, that is made of products and roots."""


def expand_power(call: Call) -> Expr:
    """Return x^n as products and square roots, to 2 ulp, if n is a small multiple of 1/4.

    Any other power stays as it is. Fractions are rewritten in single precision only.
    """
    base, exponent = call.args
    quarters = exponent.value * 4 if isinstance(exponent, tirx.FloatImm) else 0.0
    fits = quarters.is_integer() and 0 < abs(quarters) <= _MOST_QUARTERS
    if not fits or (quarters % 4 and str(call.ty) != SINGLE):
        return call
    one = tirx.const(1.0, call.ty)

    def product(x: Expr) -> Expr:
        whole, rest = divmod(int(abs(quarters)), 4)
        root = tirx.sqrt(x)
        factors = [x] * whole + [root] * (rest >> 1) + [tirx.sqrt(root)] * (rest & 1)
        return reduce(mul, factors)

    positive = build_let(_fold_negative_ends(base) if quarters % 4 else base, product)
    return positive if quarters > 0 else one / positive


def _fold_negative_ends(x: Expr) -> Expr:
    """Give a fractional power the same result at -0 and 0, and at both infinities."""
    infinity = tirx.infinity(SINGLE)
    return build_let(
        x,
        lambda x: tirx.Select(
            x == make_float32(0.0), make_float32(0.0), tirx.Select(x == -infinity, infinity, x)
        ),
    )


def expand_rsqrt(x: Expr) -> Expr:
    """Return 1 / sqrt(x) as TVM defines it, in a form that LLVM can turn into vectors."""
    return make_float32(1.0) / tirx.sqrt(x)
