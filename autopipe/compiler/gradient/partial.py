"""The derivatives of an expression by each element that it reads.

Reverse accumulation over the tree of one expression (S. Linnainmaa, 1976): a seed goes from the
root to the leaves and is multiplied on its way. `x[i] * y[j] + x[i]` with seed `g` gives `g * y[j]`
and `g` for x[i], and `g * x[i]` for y[j].
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from tvm import te, tirx
from tvm.ir import Call, Expr

from autopipe.compiler.gradient.expressions import (
    find_read_tensor,
    is_float,
    list_operands,
    name_of,
    read_dtype,
    walk_expression,
)
from autopipe.errors import ModelError


class Partial(NamedTuple):
    """The partial derivative of an expression by an element that it reads."""

    tensor: te.Tensor
    indices: tuple[Expr, ...]
    derivative: Expr
    """The derivative by that element, times the seed."""


Wanted = Callable[[te.Tensor], bool]
"""Predicate: whether the gradient propagates through a tensor."""


def list_partials(expr: Expr, seed: Expr, is_wanted: Wanted) -> Iterator[Partial]:
    """Yield the partial derivative of each read of a wanted tensor. Raises ModelError."""
    if not is_float(expr) or not _has_wanted_read(expr, is_wanted):
        return
    tensor = find_read_tensor(expr)
    if tensor is not None:
        yield Partial(tensor, tuple(list_operands(expr)), seed)
        return
    for part, part_seed in _apply_rule(expr, seed):
        yield from list_partials(part, part_seed, is_wanted)


def _has_wanted_read(expr: Expr, is_wanted: Wanted) -> bool:
    reads = (find_read_tensor(part) for part in walk_expression(expr))
    return any(tensor is not None and is_wanted(tensor) for tensor in reads)


def _apply_rule(expr: Expr, seed: Expr) -> list[tuple[Expr, Expr]]:
    """Return (operand, seed) of each operand of the outermost operator."""
    if type(expr) not in _OPERATORS:
        raise ModelError(f"a gradient through {type(expr).__name__} is not known here")
    return _OPERATORS[type(expr)](expr, seed)


def _differentiate_extremum(
    expr: Expr, seed: Expr, before: Callable[[Expr, Expr], Expr]
) -> list[tuple[Expr, Expr]]:
    """Propagate the seed to the larger or smaller operand; at a tie, to a constant.

    So the gradient of `max(x, 0)` at zero is zero, for either order of operands.
    """
    zero = tirx.const(0, read_dtype(expr))
    if isinstance(expr.a, tirx.FloatImm):
        return [(expr.b, tirx.Select(before(expr.b, expr.a), seed, zero))]
    first = before(expr.a, expr.b)
    return [(expr.a, tirx.Select(first, seed, zero)), (expr.b, tirx.Select(first, zero, seed))]


def _differentiate_select(
    choose: Callable[..., Any], condition: Expr, yes: Expr, no: Expr, seed: Expr
) -> list[tuple[Expr, Expr]]:
    zero = tirx.const(0, read_dtype(seed))
    return [(yes, choose(condition, seed, zero)), (no, choose(condition, zero, seed))]


def _differentiate_call(expr: Call, seed: Expr) -> list[tuple[Expr, Expr]]:
    name, operands = name_of(expr).partition(".")[2], list(expr.args)
    if name == "if_then_else":
        condition, yes, no = operands
        return _differentiate_select(tirx.if_then_else, condition, yes, no, seed)
    if name in _FLAT:
        return []
    if name == "pow":
        base, power = operands
        by_base = seed * power * te.power(base, power - 1)
        return [(base, by_base), (power, seed * expr * te.log(base))]
    if name not in _SLOPES:
        raise ModelError(f"a gradient through {name_of(expr)} is not known here")
    (operand,) = operands
    return [(operand, seed * _SLOPES[name](operand, expr))]


def _make_constant(value: float, like: Expr) -> Expr:
    return tirx.const(value, read_dtype(like))


def _derive_erf(x: Expr, _: Expr) -> Expr:
    return _make_constant(2 / math.sqrt(math.pi), x) * te.exp(-x * x)


def _compute_sign(x: Expr, _: Expr) -> Expr:
    unit, zero = _make_constant(1, x), _make_constant(0, x)
    return tirx.Select(x > zero, unit, tirx.Select(x < zero, -unit, zero))


def _derive_log(base: float, x: Expr, _: Expr) -> Expr:
    return _make_constant(1 / math.log(base), x) / x


_FLAT: Final = frozenset({"floor", "ceil", "round", "trunc", "nearbyint", "rint", "sign"})
"""Functions with derivative zero where it exists."""

_SLOPES: Final[Mapping[str, Callable[[Expr, Expr], Expr]]] = {
    "exp": lambda _, y: y,
    "exp2": lambda x, y: y * _make_constant(math.log(2), x),
    "log": lambda x, _: _make_constant(1, x) / x,
    "log2": partial(_derive_log, 2),
    "log10": partial(_derive_log, 10),
    "log1p": lambda x, _: _make_constant(1, x) / (x + _make_constant(1, x)),
    "sqrt": lambda x, y: _make_constant(0.5, x) / y,
    "rsqrt": lambda x, y: _make_constant(-0.5, x) * y / x,
    "tanh": lambda x, y: _make_constant(1, x) - y * y,
    "sigmoid": lambda x, y: y * (_make_constant(1, x) - y),
    "sin": lambda x, _: te.cos(x),
    "cos": lambda x, _: -te.sin(x),
    "tan": lambda x, y: _make_constant(1, x) + y * y,
    "sinh": lambda x, _: te.cosh(x),
    "cosh": lambda x, _: te.sinh(x),
    "asin": lambda x, _: te.rsqrt(_make_constant(1, x) - x * x),
    "acos": lambda x, _: -te.rsqrt(_make_constant(1, x) - x * x),
    "atan": lambda x, _: _make_constant(1, x) / (_make_constant(1, x) + x * x),
    "erf": _derive_erf,
    "fabs": _compute_sign,
}
"""Derivatives of unary functions, from the operand and the value of the function."""

_OPERATORS: Final[Mapping[type, Callable[[Any, Expr], list[tuple[Expr, Expr]]]]] = {
    tirx.Add: lambda e, seed: [(e.a, seed), (e.b, seed)],
    tirx.Sub: lambda e, seed: [(e.a, seed), (e.b, -seed)],
    tirx.Mul: lambda e, seed: [(e.a, seed * e.b), (e.b, seed * e.a)],
    tirx.Div: lambda e, seed: [(e.a, seed / e.b), (e.b, -seed * e / e.b)],
    tirx.Max: lambda e, seed: _differentiate_extremum(e, seed, lambda left, right: left > right),
    tirx.Min: lambda e, seed: _differentiate_extremum(e, seed, lambda left, right: left < right),
    tirx.Select: lambda e, seed: _differentiate_select(
        tirx.Select, e.condition, e.true_value, e.false_value, seed
    ),
    tirx.Cast: lambda e, seed: [(e.value, tirx.Cast(read_dtype(e.value), seed))],
    Call: _differentiate_call,
}
"""By operator: the seed of each operand."""
