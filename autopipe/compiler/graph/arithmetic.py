"""Builds arithmetic in TIR, in single precision."""

from collections.abc import Callable, Sequence
from typing import Final

from tvm import tirx
from tvm.ir import Expr

SINGLE: Final = "float32"


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial, its constant coefficient first."""
    *rest, total = map(single, coefficients)
    for coefficient in reversed(rest):
        total = total * x + coefficient
    return total


def let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """Compute a value once for all its uses in the body."""
    var = tirx.Var("t", value.ty)
    return tirx.Let(var, value, body(var))


def single(value: float) -> Expr:
    """A constant."""
    return tirx.const(value, SINGLE)
