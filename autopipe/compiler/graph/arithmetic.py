"""Builds arithmetic in TIR, in single precision where nothing else is said."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tvm import tirx
from tvm.ir import Expr, Var

SINGLE: Final = "float32"

ROUND: Final = 1.5 * 2.0**23
"""A number plus this one has no fraction left, and the number in its last bits."""
ROUND_BITS: Final = 0x4B400000
"""The bits of it."""

_PARTS: Final = ("a", "b", "value", "condition", "true_value", "false_value")
"""Where expressions have their operands."""

INFINITY_BITS: Final = 0x7F800000
"""The bits of infinity; those of what is no number are more."""

_NO_NUMBER: Final = 0x7FC00000
"""The bits of what is no number."""

_ALL_BUT_SIGN: Final = 0x7FFFFFFF


def evaluate_polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return a polynomial of x in its type, in Horner's form. The constant is the first."""
    *rest, total = (tirx.const(one, x.ty) for one in coefficients)
    for coefficient in reversed(rest):
        total = total * x + coefficient
    return total


def evaluate_odd_polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return x + x^3 * p(x^2). A sum of -0 and 0 would be 0, so a zero stays as it is."""
    far = build_let(
        x * x, lambda square: x + x * square * evaluate_polynomial(square, coefficients)
    )
    return tirx.Select(x == make_float32(0.0), x, far)


def copy_sign(value: Expr, x: Expr) -> Expr:
    """Return a value that is not below 0 with the sign of x."""
    return build_let(value, lambda value: tirx.Select(x < make_float32(0.0), -value, value))


def build_let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """Return `body` of a variable that is bound to the value, so that it is computed once."""
    var = tirx.Var("t", value.ty)
    return tirx.Let(var, value, body(var))


def count_inlined_nodes(value: Expr, bound: Mapping[Var, int]) -> int:
    """Return how many nodes an expression has with each variable's value in its place.

    `bound` has the nodes of variables that are bound around it.
    """
    if isinstance(value, tirx.Let):
        inner = count_inlined_nodes(value.value, bound)
        return count_inlined_nodes(value.body, {**bound, value.var: inner})
    if isinstance(value, Var):
        return bound.get(value, 1)
    parts = [getattr(value, name, None) for name in _PARTS]
    children = [*(part for part in parts if isinstance(part, Expr)), *getattr(value, "args", ())]
    return 1 + sum(count_inlined_nodes(child, bound) for child in children)


def take_magnitude_bits(x: Expr) -> Expr:
    """Return the bits of |x|. To compare these is done in vectors; TVM's call of `isnan` is not."""
    return tirx.reinterpret("int32", x) & _ALL_BUT_SIGN


def make_nan() -> Expr:
    """Return the constant that is no number, in single precision."""
    return tirx.reinterpret(SINGLE, tirx.const(_NO_NUMBER))


def make_float32(value: float) -> Expr:
    """Return a constant in single precision."""
    return tirx.const(value, SINGLE)
