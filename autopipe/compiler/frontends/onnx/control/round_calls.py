"""Calls of the functions of a loop: their types, and nested conditional calls."""

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst, GlobalVar

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder

Steps = Sequence[GlobalVar]
"""Functions that are called in order."""

Values = Sequence[Expr]
"""Values that functions of a loop pass to each other."""

Calls = Callable[[BlockBuilder, Steps, Values, Values], list[Expr] | Expr]
"""Emits calls of steps: (builder, steps, loop-carried values, loop invariants)."""

RoundResults = Callable[[BlockBuilder, list[Expr], Expr, list[Expr], list[Expr]], list[Expr]]
"""Builds the results of a round: (builder, next number, condition, states, rows)."""


def while_true(
    builder: BlockBuilder, steps: list[Expr], changing: Sequence[Expr], invariants: Sequence[Expr]
) -> relax.SeqExpr:
    """Call `steps` in order, each only if the condition returned by the previous one is true."""
    bindings = []

    def bind(name: str, value: Expr) -> relax.Var:
        normalized_value = builder.normalize(value)
        variable = relax.Var(name, normalized_value.ty)
        bindings.append(relax.VarBinding(variable, normalized_value))
        return variable

    result = bind("result", relax.Call(steps[0], [*changing, *invariants]))
    if len(steps) > 1:
        items = [relax.TupleGetItem(result, at) for at in range(len(result.ty.fields))]
        go, *changing = (bind("part", item) for item in items)
        next_calls = while_true(builder, steps[1:], changing, invariants)
        result = bind("result", relax.If(go, next_calls, relax.SeqExpr([], result)))
    return relax.SeqExpr([relax.BindingBlock(bindings)], result)


def as_many(builder: BlockBuilder, left: Expr, rounds: int) -> Expr:
    """Emit the test that at least `rounds` rounds remain."""
    return builder.normalize(relax.op.less_equal(relax.const(rounds, "int64"), left))


def read_number(value: Expr | None) -> int | float | bool | None:
    """Return a constant scalar, None for any other value."""
    array = value.value.numpy() if isinstance(value, GenericConst) else np.empty(0)
    number: int | float | bool | None = array.reshape(-1)[0] if array.size == 1 else None
    return number
