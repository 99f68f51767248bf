"""Visit and rewrite the expression of one TE compute op: reads, operands, substitution.

TVM's own visitors follow a read into the tensor that is read, and from there through the whole
graph. These stay in one expression.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tvm import te, tirx
from tvm.ir import Call, Expr, Op, Var

from autopipe.errors import ModelError

_BINARY: Final = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min,
    tirx.Max, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or,
    tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift,
)  # fmt: skip


def find_read_tensor(expr: Expr) -> te.Tensor | None:
    """Return the tensor that an expression is an element of; None for any other expression."""
    if isinstance(expr, Call) and name_of(expr) == "te.tensor_load":
        source = expr.args[0]
        return source if isinstance(source, te.Tensor) else None
    return None


def name_of(call: Call) -> str:
    """Return the name of the op or function that is called, such as `tirx.exp`."""
    return str(call.op.name) if isinstance(call.op, Op) else str(call.op)


def read_dtype(expr: Expr) -> str:
    """Return the type of an expression, such as `float32`."""
    return str(expr.ty)


def is_float(expr: Expr) -> bool:
    """Tell whether an expression is a number that has derivatives."""
    return "float" in read_dtype(expr)


def list_operands(expr: Expr) -> list[Expr]:
    """List the operands of an expression, for a read its indices. Raises ModelError."""
    if isinstance(expr, _BINARY):
        return [expr.a, expr.b]
    if isinstance(expr, Call):
        return list(expr.args)[find_read_tensor(expr) is not None :]
    if isinstance(expr, tirx.Select):
        return [expr.condition, expr.true_value, expr.false_value]
    if isinstance(expr, tirx.Cast):
        return [expr.value]
    if isinstance(expr, tirx.Not | tirx.BitwiseNot):
        return [expr.a]
    if isinstance(expr, Var | tirx.IntImm | tirx.FloatImm):
        return []
    raise ModelError(f"a gradient through {type(expr).__name__} is not known here")


def walk_expression(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all of its subexpressions, in pre-order."""
    yield expr
    for part in list_operands(expr):
        yield from walk_expression(part)


def has_reads(expr: Expr) -> bool:
    """Tell whether an expression reads an element of a tensor."""
    return any(find_read_tensor(part) is not None for part in walk_expression(expr))


def has_variable(expr: Expr, var: Var) -> bool:
    """Tell whether a variable occurs."""
    return any(isinstance(part, Var) and part.same_as(var) for part in walk_expression(expr))


def rewrite_expression(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace subexpressions by the result of `change`; None leaves one as it is.

    `change` sees the whole expression first; replacements are not visited.
    """
    replacement = change(expr)
    if replacement is not None:
        return replacement
    inner = [rewrite_expression(part, change) for part in list_operands(expr)]
    if isinstance(expr, _BINARY):
        return type(expr)(*inner)
    if (tensor := find_read_tensor(expr)) is not None:
        return tensor(*inner)
    if isinstance(expr, Call):
        return Call(expr.op, inner, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    if isinstance(expr, tirx.Select | tirx.Not | tirx.BitwiseNot):
        return type(expr)(*inner)
    return tirx.Cast(read_dtype(expr), *inner) if isinstance(expr, tirx.Cast) else expr


def substitute_variables(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Substitute values for variables, cast to the type of each variable."""

    def value(part: Expr) -> Expr | None:
        if not isinstance(part, Var) or part not in values:
            return None
        return cast_to(values[part], read_dtype(part))

    return rewrite_expression(expr, value)


def cast_to(expr: Expr, dtype: str) -> Expr:
    """Cast an expression to a type, if it has another one."""
    return expr if read_dtype(expr) == dtype else tirx.Cast(dtype, expr)
