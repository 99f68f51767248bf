"""Map floats to integers of the same order, with NaN above or below all numbers.

A float that is not negative maps to its bits; a negative one to its bits without the sign, times
-1. -0 and 0 are equal. Comparisons of integers are a total order where those of floats are not, and
argmax finds NaN as ReduceMax does:

    argmax([1.0, nan, 3.0])  is  argmax([0x3f800000, 0x7fffffff, 0x40400000]),  which is 1
"""

from collections.abc import Callable
from typing import Final

import tvm
from tvm import relax, te, tirx, topi
from tvm.ir import Expr

from autopipe.compiler.arithmetic.element_rewrites import Legalize

_SINGLE: Final = ("int32", 0x7FFFFFFF)
_DOUBLE: Final = ("int64", 0x7FFFFFFFFFFFFFFF)
"""Integer type, and the mask of all bits but the sign."""

FLOATS: Final = ("float16", "float32", "float64")

_LEVEL: Final = 11
"""TVM registers its own at 10."""


def to_ordered_integers(x: te.Tensor, *, nan_first: bool = False) -> te.Tensor:
    """Map the floats of a tensor to integers of the same order, NaN last or first."""
    kind, magnitude = _DOUBLE if str(x.dtype) == "float64" else _SINGLE

    def at(*index: Expr) -> Expr:
        value = x(*index).astype("float32") if str(x.dtype) == "float16" else x(*index)
        size = tirx.reinterpret(kind, value) & tirx.const(magnitude, kind)
        nan = tirx.const(-magnitude if nan_first else magnitude, kind)
        # Conditions are of floats: TVM widens integers in conditions to those of indices.
        is_negative = value < tirx.const(0, str(value.ty))
        number = tirx.Select(is_negative, tirx.const(0, kind) - size, size)
        return tirx.Select(tirx.isnan(value), nan, number)

    return te.compute(x.shape, at, name="ordered")


def restore_floats(keys: te.Tensor, dtype: str) -> te.Tensor:
    """Invert `to_ordered_integers`: map its integers back to floats of a type."""
    kind, _ = _DOUBLE if dtype == "float64" else _SINGLE

    def at(*index: Expr) -> Expr:
        key, sign = keys[index], tirx.min_value(kind)
        bits = tirx.Select(key < tirx.const(0, kind), sign - key, key)
        value = tirx.reinterpret("float64" if dtype == "float64" else "float32", bits)
        return value.astype(dtype)

    return te.compute(keys.shape, at, name="restored")


def _make_legalizer(find: Callable[..., te.Tensor], *, nan_first: bool) -> Legalize:
    """Build the legalization of `relax.argmax` or `relax.argmin`."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axis, keepdims = call.attrs.axis, bool(call.attrs.keepdims)

        def compute(x: te.Tensor) -> te.Tensor:
            along = None if axis is None else int(axis)
            if str(x.dtype) in FLOATS:
                return find(to_ordered_integers(x, nan_first=nan_first), along, keepdims)
            return _clamp_positions(find(x, along, keepdims))

        return builder.call_te(compute, call.args[0], primfunc_name_hint=find.__name__)

    return legalize


def _clamp_positions(places: te.Tensor) -> te.Tensor:
    """Clamp positions to 0 from below.

    TVM's search begins at position -1 with the extreme value of the dtype, and stays there where
    all elements equal it, such as 0 for uint8.
    """
    return te.compute(places.shape, lambda *at: tirx.max(places[at], 0), name="inside")


for _find, _nan_first in ((topi.argmax, False), (topi.argmin, True)):
    tvm.ir.register_op_attr(
        f"relax.{_find.__name__}", "FLegalize", _make_legalizer(_find, nan_first=_nan_first), _LEVEL
    )
