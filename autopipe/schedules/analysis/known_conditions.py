"""Leaves out conditions that always hold, where divisions hide that from TVM.

Example: the gradient of a mean of 2 x 2 pixels asks whether a window begins at or before a row. For
rows i from 0 on it always does:

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
"""Makes divisions of an expression round down where that is the same."""

_COMPARISONS: Final = (LE, LT, GE, GT)


def remove_known_conditions(part: tvm.ir.Node, known: Analyzer, rounded: Rounded) -> Any:  # noqa: ANN401 - TVM's statements
    """Return a statement without conditions that always hold by what is known of its axes."""

    def compared(one: tvm.ir.Expr) -> Expr:
        return IntImm("bool", 1) if _can_prove(one, known, rounded) else one

    def both(one: And) -> Expr:
        return one.b if _is_true(one.a) else one.a if _is_true(one.b) else one

    def chosen(one: Select) -> Expr:
        return one.true_value if _is_true(one.condition) else one

    def called(one: Call) -> Expr:
        return one.args[1] if is_branch(one) and _is_true(one.args[0]) else one

    changes = (*((kind, compared) for kind in _COMPARISONS), (And, both), (Select, chosen))
    for change in (*changes, (Call, called)):
        part = tvm_ffi.structural_map(part, change)
    return part


def _can_prove(one: Any, known: Analyzer, rounded: Rounded) -> bool:  # noqa: ANN401 - a comparison
    """Tell whether a comparison of integers holds, for each value of what it chooses from."""
    if "int" not in str(one.a.ty.dtype):
        return False
    for at, side in enumerate((one.a, one.b)):
        if isinstance(side, Select):
            asked = ((side.condition, side.true_value), (Not(side.condition), side.false_value))
            return all(_can_prove_if(*each, one, at, (known, rounded)) for each in asked)
    return bool(known.can_prove(type(one)(rounded(one.a, known), rounded(one.b, known))))


def _can_prove_if(
    condition: Expr, value: Expr, one: Any, at: int, by: tuple[Analyzer, Rounded]  # noqa: ANN401 - likewise
) -> bool:  # fmt: skip
    known, rounded = by
    sides = [one.a, one.b]
    sides[at] = value
    with known.constraint_scope(condition):
        return _can_prove(type(one)(*sides), known, rounded)


def _is_true(one: Expr) -> bool:
    return isinstance(one, IntImm) and str(one.ty.dtype) == "bool" and bool(one.value)
