"""Removes tie-breaking comparisons from the steps of argmax where steps are in ascending order.

TVM writes argmax so that partial results can be combined in any order: of equal elements the lower
position is kept. Where the steps of an output are in ascending order, the position so far is always
lower than that of the step, and the comparison is redundant.

Example: with k ascending and `at` started at -1,

    at = select(most > x[k] or (most == x[k] and at < k), at, k)

is select(most >= x[k], at, k): three operations of a vector in place of seven. A NaN is neither
above nor equal, in both.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, Range, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation

from autopipe.schedules.analysis.blocks import extent_of
from autopipe.schedules.analysis.expressions import replace_variables

_LOWER: Final = (tirx.LT, tirx.LE)
_HIGHER: Final = (tirx.GT, tirx.GE)
_JOINED: Final = ((tirx.GT, tirx.GE), (tirx.LT, tirx.LE))
"""A strict comparison, and its disjunction with equality."""

Place = Callable[[TensorLoad], int | None]
"""Returns the position of the result that a load reads; None for an operand."""


def find_ascending(
    values: Sequence[Expr], starts: Sequence[Expr], place: Place, steps: Sequence[tuple[Any, Any]]
) -> frozenset[int]:
    """Return the results that hold the position of an earlier step.

    `steps` are the variables of the reduction axes and their ranges, the outermost first.
    """
    return frozenset(
        i
        for i, (value, start) in enumerate(zip(values, starts, strict=True))
        if (here := _find_other_side(value, i, place)) is not None
        and _is_ascending(here, start, steps)
    )


def remove_tie_breaks(
    values: Sequence[Expr], positions: frozenset[int], place: Place
) -> tuple[Expr, ...]:
    """Remove the comparisons of a stored position with that of the step, which is higher.

    `positions` are the results that `find_ascending` returns.
    """
    step_positions = [
        _find_other_side(v, i, place) if i in positions else None for i, v in enumerate(values)
    ]

    def is_before(left: tvm.ir.Expr, right: tvm.ir.Expr) -> bool:
        result = place(left) if isinstance(left, TensorLoad) else None
        position = None if result is None else step_positions[result]
        return position is not None and bool(tvm_ffi.structural_equal(right, position))

    def decide_comparison(value: tvm.ir.Expr) -> bool | None:
        if is_before(value.a, value.b):
            return isinstance(value, _LOWER)
        return isinstance(value, _HIGHER) if is_before(value.b, value.a) else None

    def rewritten(value: tvm.ir.Expr) -> Expr | bool:
        if isinstance(value, (*_LOWER, *_HIGHER)):
            outcome = decide_comparison(value)
            return value if outcome is None else outcome
        if isinstance(value, (tirx.And, tirx.Or)):
            return _combine_conditions(value, rewritten(value.a), rewritten(value.b))
        return value

    def chosen(value: tvm.ir.Expr) -> Expr:
        if not isinstance(value, tirx.Select):
            return value
        condition = rewritten(value.condition)
        if isinstance(condition, bool):
            return value
        return tirx.Select(condition, value.true_value, value.false_value)

    return tuple(map(chosen, values))


def _combine_conditions(value: Expr, left: Any, right: Any) -> Expr | bool:  # noqa: ANN401 - some are known
    """Combine two operands of And or Or, each of which may be constant."""
    absorbing = isinstance(value, tirx.Or)
    for part, opposite in ((left, right), (right, left)):
        if isinstance(part, bool):
            return part if part is absorbing else opposite
    if not absorbing:
        return tirx.And(left, right)
    for strict, loose in _JOINED:
        for part, opposite in ((left, right), (right, left)):
            if (
                isinstance(part, strict)
                and isinstance(opposite, tirx.EQ)
                and _has_same_operands(part, opposite)
            ):
                return loose(part.a, part.b)
    return tirx.Or(left, right)


def _has_same_operands(first: tvm.ir.Expr, second: tvm.ir.Expr) -> bool:
    """Tell whether two comparisons have the same operands, in any order."""
    equal = tvm_ffi.structural_equal
    is_equal = equal(first.a, second.a) and equal(first.b, second.b)
    return bool(is_equal or (equal(first.a, second.b) and equal(first.b, second.a)))


def _find_other_side(value: tvm.ir.Expr, result: int, place: Place) -> Expr | None:
    """Return the operand of a select that is not the result, or None."""
    if not isinstance(value, tirx.Select) or "int" not in str(value.ty.dtype):
        return None
    sides = value.true_value, value.false_value
    is_result = [isinstance(side, TensorLoad) and place(side) == result for side in sides]
    return sides[is_result.index(False)] if is_result.count(True) == 1 else None


def _is_ascending(position: Expr, start: Expr, steps: Sequence[tuple[Any, Any]]) -> bool:
    """Tell whether a position ascends strictly with each step, from above the initial value."""
    position, steps = _widen_to_one_type(position, steps)
    analyzer = Analyzer()
    for var, step_range in steps:
        analyzer.bind(var, step_range)
    position = analyzer.simplify(position)
    factors = list(detect_linear_equation(position, [var for var, _ in steps]))[:-1]
    if not factors or not all(isinstance(factor, tirx.IntImm) for factor in factors):
        return False
    maximum = 0
    extents = [extent_of(one.extent) for _, one in steps]
    for factor, extent in zip(map(int, reversed(factors)), reversed(extents), strict=True):
        if not isinstance(extent, int) or (extent > 1 and factor <= maximum):
            return False
        maximum += factor * (extent - 1)
    return isinstance(start, tirx.IntImm) and analyzer.const_int_bound(position).min_value > int(
        start
    )


def _widen_to_one_type(
    position: Expr, steps: Sequence[tuple[Any, Any]]
) -> tuple[Expr, list[tuple[Any, Any]]]:
    """Widen the step variables of a position to its dtype; return it and their ranges.

    Example: cast(int64, k) of an int32 k becomes an int64 k.
    """
    dtype = str(position.ty.dtype)
    wide = [(var, tirx.Var(var.name, dtype)) for var, _ in steps]

    def cast(value: tvm.ir.Expr) -> Expr:
        wide_variables = (other for var, other in wide if var.same_as(value.value))
        return next(wide_variables, value) if str(value.ty.dtype) == dtype else value

    position = tvm_ffi.structural_map(position, (tirx.Cast, cast))
    same_dtype_variables = [(var, other) for var, other in wide if str(var.ty.dtype) == dtype]
    ranges = [
        (other, Range(*(part.astype(dtype) for part in (one.min, one.min + one.extent))))
        for (_, other), (_, one) in zip(wide, steps, strict=True)
    ]
    return replace_variables(position, same_dtype_variables), ranges
