"""Build arithmetic in TIR, in float32 unless stated otherwise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tvm import tirx
from tvm.ir import Expr, Var

SINGLE: Final = "float32"

ROUND: Final = 1.5 * 2.0**23
"""Adding it rounds a float32 to an integer, which is then in the last bits."""
ROUND_BITS: Final = 0x4B400000
"""The bits of `ROUND`."""

_PARTS: Final = ("a", "b", "value", "condition", "true_value", "false_value")
"""Attributes of expressions that hold operands."""

INFINITY_BITS: Final = 0x7F800000
"""The bits of infinity; those of NaN are greater."""

_NAN_BITS: Final = 0x7FC00000
"""The bits of NaN."""

_ALL_BUT_SIGN: Final = 0x7FFFFFFF


def evaluate_polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Evaluate a polynomial of x in its type by Horner's rule; the constant comes first."""
    *leading, total = (tirx.const(coefficient, x.ty) for coefficient in coefficients)
    for coefficient in reversed(leading):
        total = total * x + coefficient
    return total


def evaluate_odd_polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Evaluate x + x^3 * p(x^2). A sum of -0 and 0 would be 0, so a zero is returned as it is."""
    far = build_let(
        x * x, lambda square: x + x * square * evaluate_polynomial(square, coefficients)
    )
    return tirx.Select(x == make_float32(0.0), x, far)


def copy_sign(value: Expr, x: Expr) -> Expr:
    """Give a value that is not negative the sign of x."""
    return build_let(value, lambda value: tirx.Select(x < make_float32(0.0), -value, value))


def build_let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """Bind a value to a variable for `body`, so that it is computed once."""
    var = tirx.Var("t", value.ty)
    return tirx.Let(var, value, body(var))


def count_inlined_nodes(value: Expr, node_counts: Mapping[Var, int]) -> int:
    """Count the nodes of an expression with all of its variables inlined.

    `node_counts` has the counts of variables that are bound around it.
    """
    if isinstance(value, tirx.Let):
        inner = count_inlined_nodes(value.value, node_counts)
        return count_inlined_nodes(value.body, {**node_counts, value.var: inner})
    if isinstance(value, Var):
        return node_counts.get(value, 1)
    parts = [getattr(value, name, None) for name in _PARTS]
    children = [*(part for part in parts if isinstance(part, Expr)), *getattr(value, "args", ())]
    return 1 + sum(count_inlined_nodes(child, node_counts) for child in children)


def take_magnitude_bits(x: Expr) -> Expr:
    """Return the bits of |x|. Their comparison is vectorized; TVM's call of `isnan` is not."""
    return tirx.reinterpret("int32", x) & _ALL_BUT_SIGN


def make_nan() -> Expr:
    """Build a float32 NaN."""
    return tirx.reinterpret(SINGLE, tirx.const(_NAN_BITS))


def make_float32(value: float) -> Expr:
    """Build a float32 constant."""
    return tirx.const(value, SINGLE)
