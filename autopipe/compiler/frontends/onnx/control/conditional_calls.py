"""Calls of functions under conditions, of which loops are made."""

from collections.abc import Sequence
from typing import Any

from tvm import relax

# ruff: noqa: ANN401  TVM has no types


def while_true(builder: Any, steps: list[Any], changing: list[Any], fixed: Sequence[Any]) -> Any:
    """Return the calls of `steps`, each under the condition that the one before it returned."""
    bindings = []

    def bound(name: str, value: Any) -> Any:
        made = builder.normalize(value)
        variable = relax.Var(name, made.ty)
        bindings.append(relax.VarBinding(variable, made))
        return variable

    result = bound("result", relax.Call(steps[0], [*changing, *fixed]))
    if len(steps) > 1:
        items = [relax.TupleGetItem(result, at) for at in range(len(result.ty.fields))]
        go, *changing = (bound("part", item) for item in items)
        rest = while_true(builder, steps[1:], changing, fixed)
        result = bound("result", relax.If(go, rest, relax.SeqExpr([], result)))
    return relax.SeqExpr([relax.BindingBlock(bindings)], result)


def as_many(builder: Any, left: Any, rounds: int) -> Any:
    """Return whether at least so many rounds are left."""
    return builder.normalize(relax.op.less_equal(relax.const(rounds, "int64"), left))
