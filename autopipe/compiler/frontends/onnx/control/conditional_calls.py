"""Calls of functions under conditions, of which loops are made."""

from collections.abc import Sequence

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder


def while_true(
    builder: BlockBuilder, steps: list[Expr], changing: Sequence[Expr], fixed: Sequence[Expr]
) -> relax.SeqExpr:
    """Return the calls of `steps`, each under the condition that the one before it returned."""
    bindings = []

    def bound(name: str, value: Expr) -> relax.Var:
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


def as_many(builder: BlockBuilder, left: Expr, rounds: int) -> Expr:
    """Return whether at least so many rounds are left."""
    return builder.normalize(relax.op.less_equal(relax.const(rounds, "int64"), left))
