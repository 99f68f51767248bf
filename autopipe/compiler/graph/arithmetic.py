"""Builds arithmetic in TIR, in single precision."""

from collections.abc import Callable, Sequence
from typing import Final

from tvm import tirx
from tvm.ir import Expr

SINGLE: Final = "float32"

ROUND: Final = 1.5 * 2.0**23
"""A number plus this one has no fraction left, and the number in its last bits."""
ROUND_BITS: Final = 0x4B400000
"""The bits of it."""


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return a polynomial in Horner's form. The constant coefficient is the first."""
    *rest, total = map(single, coefficients)
    for coefficient in reversed(rest):
        total = total * x + coefficient
    return total


def let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """Return `body` of a variable that is bound to the value, so that it is computed once."""
    var = tirx.Var("t", value.ty)
    return tirx.Let(var, value, body(var))


def single(value: float) -> Expr:
    """Return a constant in single precision."""
    return tirx.const(value, SINGLE)
