"""Describe an op by the call of a PrimFunc that it was legalized to."""

from collections.abc import Mapping

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import find_callee
from autopipe.compiler.graph.literals import list_tensors, read_attributes, read_literal
from autopipe.tasks.op_info import Argument, Fields, Op, Parameter


def describe_legalized_op(
    value: relax.Expr, call: relax.Call, ops: Mapping[str, relax.Expr], *, is_whole: bool
) -> Op:
    """Describe an op in terms of the arguments of the PrimFunc call that it was legalized to."""
    parameters = tuple(Parameter(parameter=i) for i in range(len(call.args[1])))
    outputs = list_tensors(call.ty)
    if (
        not isinstance(value, relax.Call)
        or not isinstance(value.op, tvm.ir.Op)
        or find_callee(value)
    ):
        attributes = {"function": str(call.args[0].name_hint)}
        return Op(name="call_tir", attributes=attributes, arguments=parameters, outputs=outputs)
    op = Op(
        name=value.op.name.removeprefix("relax."),
        attributes=read_attributes(value.attrs),
        outputs=outputs,
        whole=is_whole,
    )
    arguments = _match_arguments(value, call, ops) if is_whole else parameters
    return op.model_copy(update={"arguments": arguments})


def _match_arguments(
    value: relax.Call, call: relax.Call, ops: Mapping[str, relax.Expr]
) -> tuple[Argument, ...]:
    """Match each argument of an op with an argument of the call."""
    remaining = list(enumerate(call.args[1]))

    def found(arg: relax.Expr) -> Argument:
        bound = ops.get(arg.name) if isinstance(arg, relax.Var) else None
        tuple_ = next((value for value in (arg, bound) if isinstance(value, relax.Tuple)), None)
        if tuple_ is not None:
            return Fields(fields=tuple(map(found, tuple_.fields)))
        if isinstance(arg.ty, relax.TupleType):  # each of its tensors is a separate argument
            fields, remaining[:] = remaining[: len(arg.ty.fields)], remaining[len(arg.ty.fields) :]
            return Fields(fields=tuple(Parameter(parameter=index) for index, _ in fields))
        match = next(
            (candidate for candidate in remaining if _is_same_value(candidate[1], arg)), None
        )
        if match is None:
            return read_literal(arg)
        remaining.remove(match)
        return Parameter(parameter=match[0])

    return tuple(map(found, value.args))


def _is_same_value(operand: relax.Expr, arg: relax.Expr) -> bool:
    if isinstance(operand, relax.Var) and isinstance(arg, relax.Var):
        return bool(operand.name == arg.name)
    return bool(operand.same_as(arg))
