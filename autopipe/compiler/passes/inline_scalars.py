"""Makes plain numbers of constants with one element, where an elementwise op reads them.

Exporters store the 3 of a hard swish as a tensor of shape [1] or [1, 1, 1, 1]. Such a tensor stands
in the way of layouts, and would be an argument of a kernel:

    multiply(const [1], x [1, 16, 24, 160])

becomes a product with a number, which takes any layout and is part of the code.

Of a number in the code TVM takes `x + 0` for x, which is wrong at -0, and `x * 0` for 0, which is
wrong at infinities and NaN. So floats of zero that are added go the other way and become tensors,
and `x * 0` becomes `x / inf`.
"""

from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.literals import read_static_shape
from autopipe.compiler.graph.rewrite import rewrite_graph

_BINARY: Final = frozenset(
    f"relax.{name}"
    for name in ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract")
)


def inline_scalars(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with constants of one element as numbers, where that changes no shape."""
    return rewrite_graph(_Numbers(module), module)


@mutator
class _Numbers(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") not in _BINARY:
            return call
        left, right = call.args
        if call.op.name == "relax.multiply":
            for one, zero in ((left, right), (right, left)):
                if _is_float_zero(zero):
                    return relax.op.divide(one, _to_scalar(_make_infinity(zero), one))
        if call.op.name == "relax.add" and any(map(_is_float_zero, call.args)):
            return relax.Call(
                call.op, [_as_tensor(left, right), _as_tensor(right, left)], call.attrs
            )
        return relax.Call(call.op, [_to_scalar(left, right), _to_scalar(right, left)], call.attrs)


def _make_infinity(zero: relax.Expr) -> relax.Expr:
    """Return an infinity of the sign of a zero: numbers divided by it are those times zero."""
    sign = zero.value.numpy().astype("float64")
    return relax.const(np.copysign(np.inf, sign), str(zero.value.dtype))


def _is_float_zero(value: relax.Expr) -> bool:
    if not isinstance(value, GenericConst) or "float" not in str(value.value.dtype):
        return False
    array = value.value.numpy()
    return array.size == 1 and float(array.reshape(())) == 0


def _as_tensor(value: relax.Expr, other: relax.Expr) -> relax.Expr:
    """Return a zero with one dimension where the other side has some; anything else as it is."""
    shape = read_static_shape(other)
    if not _is_float_zero(value) or not shape or read_static_shape(value):
        return value
    return relax.const(value.value.numpy().reshape(1), str(value.value.dtype))


def _to_scalar(value: relax.Expr, other: relax.Expr) -> relax.Expr:
    """Return a constant of one element as a number, if the other side has all dimensions."""
    shape = read_static_shape(other)
    if not isinstance(value, GenericConst) or isinstance(other, GenericConst) or shape is None:
        return value
    array = value.value.numpy()
    if array.size != 1 or not 0 < array.ndim <= len(shape):
        return value
    return relax.const(array.reshape(()), str(array.dtype))
