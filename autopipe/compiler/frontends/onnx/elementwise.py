"""Converters of elementwise operators that TVM's read otherwise than ONNX defines them."""

from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known

# ruff: noqa: ANN401, ARG003  TVM's converters have no types, and one signature

_LARGEST_CHAIN: Final = 8
"""Integers to a greater power than this are computed as double precision."""


class Equal(onnx_frontend.Equal):
    """Equal of bool as well: TVM compares them as floats, which LLVM refuses."""

    @classmethod
    def _impl_v13(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        fixed = all(isinstance(value, GenericConst) for value in inputs)
        if fixed or str(getattr(inputs[0].ty, "dtype", "")) != "bool":
            return super()._impl_v13(bb, inputs, attr, params)
        return relax.op.logical_not(bb.normalize(relax.op.logical_xor(*inputs)))


class IsInf(onnx_frontend.IsInf):
    """IsInf of either sign, or of one."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        negative, positive = (attr.get(f"detect_{sign}", 1) for sign in ("negative", "positive"))
        if negative and positive:
            return super()._impl_v10(bb, inputs, attr, params)
        if not negative and not positive:
            return relax.op.zeros(inputs[0].ty.shape, "bool")
        wanted = np.inf if positive else -np.inf
        return relax.op.equal(inputs[0], relax.const(wanted, inputs[0].ty.dtype))


class Div(onnx_frontend.Div):
    """Div of integers by any number: by 0 as `compiler/integer_division.py` says."""

    @classmethod
    def _impl_v7(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if _is_integer_constant(inputs[1]) and not inputs[1].value.numpy().all():
            return relax.op.divide(*inputs)
        return super()._impl_v7(bb, inputs, attr, params)


class Mod(onnx_frontend.Mod):
    """Mod with the sign of the divisor, or with that of the dividend."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if _is_integer_constant(inputs[1]) and not inputs[1].value.numpy().all():
            divide = relax.op.mod if attr.get("fmod", 0) else relax.op.floor_mod
            return divide(*inputs)
        if str(inputs[0].ty.dtype).startswith("float") and not attr.get("fmod", 0):
            remainder = bb.normalize(relax.op.mod(*inputs))
            zero = relax.const(0, inputs[0].ty.dtype)
            signs = [relax.op.less(value, zero) for value in (remainder, inputs[1])]
            apart = relax.op.logical_xor(*signs)
            apart = relax.op.logical_and(apart, relax.op.not_equal(remainder, zero))
            return relax.op.where(apart, relax.op.add(remainder, inputs[1]), remainder)
        return super()._impl_v10(bb, inputs, attr, params)


class Pow(onnx_frontend.Pow):
    """Pow of any two types: the result has that of the base."""

    @classmethod
    def _impl_v7(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        base, exponent = inputs
        of_base, of_exponent = (str(value.ty.dtype) for value in inputs)
        if of_base.startswith("float"):
            if of_base == of_exponent:
                return super()._impl_v7(bb, inputs, attr, params)
            exponent = bb.normalize(relax.op.astype(exponent, of_base))
            return super()._impl_v7(bb, [base, exponent], attr, params)
        if (times := _count(exponent)) is not None:
            ones = list(range(exponent.ty.ndim - base.ty.ndim))  # axes that only the exponent has
            base = bb.normalize(relax.op.expand_dims(base, ones)) if ones else base
            return _product(bb, base, times)
        wide = [bb.normalize(relax.op.astype(value, "float64")) for value in inputs]
        return relax.op.astype(relax.op.power(*wide), of_base)


class Cosh(onnx_frontend.OnnxOpConverter):
    """Cosh by exponentials of half, whose product overflows only where the result does.

    LLVM has no cosh. The exponential of x itself is infinite from 88.73 on, its half from 89.42.
    """

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        half = bb.normalize(relax.op.multiply(inputs[0], relax.const(0.5, inputs[0].ty.dtype)))
        rising, falling = _half_squares(bb, half)
        return relax.op.add(rising, falling)


class Sinh(onnx_frontend.OnnxOpConverter):
    """Sinh by such exponentials, and near 0, where they cancel, by the tangent of half."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        (value,) = inputs
        number = partial(relax.const, dtype=value.ty.dtype)
        half = bb.normalize(relax.op.multiply(value, number(0.5)))
        rising, falling = _half_squares(bb, half)
        tangent = bb.normalize(relax.op.tanh(half))
        square = relax.op.multiply(tangent, tangent)
        small = relax.op.divide(
            relax.op.multiply(number(2.0), tangent), relax.op.subtract(number(1.0), square)
        )
        is_small = relax.op.less(relax.op.abs(value), number(1.0))
        return relax.op.where(is_small, small, relax.op.subtract(rising, falling))


def _half_squares(bb: Any, half: Any) -> tuple[Any, Any]:
    """Return half the squares of exp(half) and of exp(-half)."""
    made = []
    for value in (half, bb.normalize(relax.op.negative(half))):
        power = bb.normalize(relax.op.exp(value))
        halved = bb.normalize(relax.op.multiply(power, relax.const(0.5, half.ty.dtype)))
        made.append(bb.normalize(relax.op.multiply(halved, power)))
    return made[0], made[1]


class PRelu(onnx_frontend.OnnxOpConverter):
    """PRelu of any dtype, its slope of any shape that is broadcast to that of the data."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        return _scale_negatives(bb, *inputs)


class LeakyRelu(onnx_frontend.LeakyRelu):
    """LeakyRelu that makes NaN of -inf where its slope is 0, of which TVM's operator makes 0."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if attr.get("alpha") != 0:
            return super()._impl_v1(bb, inputs, attr, params)
        return _scale_negatives(bb, inputs[0], relax.const(0, str(inputs[0].ty.dtype)))


def _scale_negatives(bb: Any, data: Any, slope: Any) -> Any:
    """Return the data, and their products with the slope where they are below zero."""
    scaled = bb.normalize(relax.op.multiply(data, slope))
    zero = relax.const(0, str(data.ty.dtype))
    return relax.op.where(bb.normalize(relax.op.less(data, zero)), scaled, data)


class Trilu(onnx_frontend.Trilu):
    """Trilu of a diagonal that may be far outside of the matrix, further than 32 bits count."""

    @classmethod
    def _impl_v14(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, diagonal = (*inputs, None)[:2]
        found = known.values(diagonal, params)
        sizes = known.extents_of(data.ty, f"input of Trilu {known.name(attr)}")[-2:]
        if found is not None and min(sizes) >= 0:
            rows, columns = sizes
            nearest = min(max(int(found.item()), -rows), columns)
            diagonal = relax.const(nearest, "int64")
        return super()._impl_v14(bb, [data, diagonal], attr, params)


class EyeLike(onnx_frontend.EyeLike):
    """EyeLike in another dtype than its input has."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if "dtype" not in attr:
            return super()._impl_v9(bb, inputs, attr, params)
        rows, columns = inputs[0].ty.shape.values
        dtype = onnx_frontend.get_type(attr["dtype"])
        return relax.op.eye(rows, columns, attr.get("k", 0), dtype)


_OURS = (Cosh, Div, Equal, EyeLike, IsInf, LeakyRelu, Mod, PRelu, Pow, Sinh, Trilu)
CONVERTERS: Final = {each.__name__: each for each in _OURS}


def _is_integer_constant(value: Any) -> bool:
    return isinstance(value, GenericConst) and value.value.numpy().dtype.kind in "iu"


def _count(exponent: Any) -> int | None:
    """Return a constant exponent that is one small number, None for others."""
    if not isinstance(exponent, GenericConst):
        return None
    values = exponent.value.numpy()
    small = values.size == 1 and 1 <= values.item() <= _LARGEST_CHAIN
    return int(values.item()) if small and values.item() == int(values.item()) else None


def _product(bb: Any, base: Any, times: int) -> Any:
    result = base
    for _ in range(times - 1):
        result = bb.normalize(relax.op.multiply(result, base))
    return result
