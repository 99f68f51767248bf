"""Makes plain numbers of constants with one element, where an elementwise op reads them.

Exporters store the 3 of a hard swish as a tensor of shape [1] or [1, 1, 1, 1]. Such a tensor stands
in the way of layouts, and would be an argument of a kernel:

    multiply(const [1], x [1, 16, 24, 160])

becomes a product with a number, which takes any layout and is part of the code.
"""

from typing import Final

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.literals import known_shape
from autopipe.compiler.graph.rewrite import rewrite

_BINARY: Final = frozenset(
    f"relax.{name}"
    for name in ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract")
)


def plain_numbers(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with constants of one element as numbers, where that changes no shape."""
    return rewrite(_Numbers(module), module)


@mutator
class _Numbers(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") not in _BINARY:
            return call
        left, right = call.args
        return relax.Call(call.op, [_number(left, right), _number(right, left)], call.attrs)


def _number(value: relax.Expr, other: relax.Expr) -> relax.Expr:
    """Return a constant of one element as a number, if the other side has all dimensions."""
    shape = known_shape(other)
    if not isinstance(value, GenericConst) or isinstance(other, GenericConst) or shape is None:
        return value
    array = value.value.numpy()
    if array.size != 1 or not 0 < array.ndim <= len(shape):
        return value
    return relax.const(array.reshape(()), str(array.dtype))
