"""Nested conditional calls, the building block of loops."""

from collections.abc import Sequence

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder


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
