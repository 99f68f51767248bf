"""Convert constants of one element to scalars where elementwise ops read them.

Exporters store the 3 of a hard swish as a tensor of shape [1] or [1, 1, 1, 1]. Such a tensor blocks
layout propagation, and would be an argument of a kernel:

    multiply(const [1], x [1, 16, 24, 160])

becomes a product with a scalar, which works in any layout and is part of the code.

With scalars TVM folds `x + 0` to x, which is wrong at -0, and `x * 0` to 0, which is wrong at
infinities and NaN. So added float zeros are converted to tensors instead, and `x * 0` becomes
`x / inf`.
"""

from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from autopipe.compiler.graph.literals import read_rank
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls

_BINARY: Final = frozenset(
    f"relax.{name}"
    for name in ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract")
)


def inline_scalars(module: tvm.IRModule) -> tvm.IRModule:
    """Convert constants of one element to scalars where that changes no shape."""
    return rewrite_calls(_inline_operands, module)


def _inline_operands(site: CallSite) -> relax.Expr:
    call = site.call
    if site.op not in _BINARY:
        return call
    left, right = call.args
    if site.op == "relax.multiply":
        for factor, zero in ((left, right), (right, left)):
            if _is_float_zero(zero):
                return relax.op.divide(factor, _to_scalar(_make_infinity(zero), factor))
    convert = _to_scalar
    if site.op == "relax.add" and any(map(_is_float_zero, call.args)):
        convert = _as_tensor
    return relax.Call(call.op, [convert(left, right), convert(right, left)], call.attrs)


def _make_infinity(zero: relax.Expr) -> relax.Expr:
    """Build an infinity of the sign of a zero: `x / infinity` equals `x * zero`."""
    sign = zero.value.numpy().astype("float64")
    return relax.const(np.copysign(np.inf, sign), str(zero.value.dtype))


def _is_float_zero(value: relax.Expr) -> bool:
    if not isinstance(value, GenericConst) or "float" not in str(value.value.dtype):
        return False
    array = value.value.numpy()
    return array.size == 1 and float(array.reshape(())) == 0


def _as_tensor(value: relax.Expr, partner: relax.Expr) -> relax.Expr:
    """Convert a scalar zero to one dimension if its partner has some; keep any other value."""
    if not _is_float_zero(value) or read_rank(partner.ty) < 1 or read_rank(value.ty) > 0:
        return value
    return relax.const(value.value.numpy().reshape(1), str(value.value.dtype))


def _to_scalar(value: relax.Expr, partner: relax.Expr) -> relax.Expr:
    """Convert a constant of one element to a scalar, if its partner has as many dimensions."""
    if not isinstance(value, GenericConst) or isinstance(partner, GenericConst):
        return value
    array = value.value.numpy()
    if array.size != 1 or not 0 < array.ndim <= read_rank(partner.ty):
        return value
    return relax.const(array.reshape(()), str(array.dtype))
