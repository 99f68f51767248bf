"""Removes conditions that always hold, where divisions prevent TVM from proving it.

Example: the gradient of a mean of 2 x 2 pixels tests whether a window begins at or before a row.
For rows i >= 0 it always does:

    select(i < 2, 0, (i - 2) / 2 + 1) <= i / 2          # before; divisions round towards zero
    i < 2:   0 <= i // 2                                # both parts hold
    i >= 2:  (i - 2) // 2 + 1 <= i // 2
"""

from collections.abc import Callable
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Call, Expr
from tvm.sym import Analyzer
from tvm.tirx import GE, GT, LE, LT, And, IntImm, Not, Select

from autopipe.schedules.analysis.expressions import is_branch

Rounded = Callable[[Expr, Analyzer], Expr]
"""Replaces truncating divisions by floor divisions where both are equal."""

_COMPARISONS: Final = (LE, LT, GE, GT)


def remove_known_conditions(part: tvm.ir.Node, analyzer: Analyzer, floor: Rounded) -> Any:  # noqa: ANN401 - TVM's statements
    """Remove conditions from a statement that hold for the ranges of its axes."""

    def compared(comparison: tvm.ir.Expr) -> Expr:
        return IntImm("bool", 1) if _can_prove(comparison, analyzer, floor) else comparison

    def both(pair: And) -> Expr:
        return pair.b if _is_true(pair.a) else pair.a if _is_true(pair.b) else pair

    def chosen(select: Select) -> Expr:
        return select.true_value if _is_true(select.condition) else select

    def called(call: Call) -> Expr:
        return call.args[1] if is_branch(call) and _is_true(call.args[0]) else call

    changes = (*((kind, compared) for kind in _COMPARISONS), (And, both), (Select, chosen))
    for change in (*changes, (Call, called)):
        part = tvm_ffi.structural_map(part, change)
    return part


def _can_prove(comparison: Any, analyzer: Analyzer, floor: Rounded) -> bool:  # noqa: ANN401 - a comparison
    """Tell whether a comparison of integers holds, for each operand of a select in it."""
    if "int" not in str(comparison.a.ty.dtype):
        return False
    for at, side in enumerate((comparison.a, comparison.b)):
        if isinstance(side, Select):
            cases = ((side.condition, side.true_value), (Not(side.condition), side.false_value))
            return all(_can_prove_if(*each, comparison, at, (analyzer, floor)) for each in cases)
    return bool(
        analyzer.can_prove(
            type(comparison)(floor(comparison.a, analyzer), floor(comparison.b, analyzer))
        )
    )


def _can_prove_if(
    condition: Expr, value: Expr, comparison: Any, at: int, prover: tuple[Analyzer, Rounded]  # noqa: ANN401 - likewise
) -> bool:  # fmt: skip
    analyzer, floor = prover
    sides = [comparison.a, comparison.b]
    sides[at] = value
    with analyzer.constraint_scope(condition):
        return _can_prove(type(comparison)(*sides), analyzer, floor)


def _is_true(condition: Expr) -> bool:
    return (
        isinstance(condition, IntImm)
        and str(condition.ty.dtype) == "bool"
        and bool(condition.value)
    )
