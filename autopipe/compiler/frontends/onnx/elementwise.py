"""Converters of elementwise operators that TVM's read otherwise than ONNX defines them."""

from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

# ruff: noqa: ANN401, ARG003  TVM's converters have no types, and one signature

_LARGEST_CHAIN: Final = 8
"""Integers to a greater power than this are computed as double precision."""


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
            return _product(bb, base, times)
        wide = [bb.normalize(relax.op.astype(value, "float64")) for value in inputs]
        return relax.op.astype(relax.op.power(*wide), of_base)


class Cosh(onnx_frontend.OnnxOpConverter):
    """Cosh by exponentials, for LLVM has none."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        half = relax.const(0.5, inputs[0].ty.dtype)
        both = relax.op.add(relax.op.exp(inputs[0]), relax.op.exp(relax.op.negative(inputs[0])))
        return relax.op.multiply(both, half)


class Sinh(onnx_frontend.OnnxOpConverter):
    """Sinh by exponentials, and near 0, where they cancel, by the tangent of half."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        (value,) = inputs
        number = partial(relax.const, dtype=value.ty.dtype)
        both = relax.op.subtract(relax.op.exp(value), relax.op.exp(relax.op.negative(value)))
        tangent = bb.normalize(relax.op.tanh(relax.op.multiply(value, number(0.5))))
        square = relax.op.multiply(tangent, tangent)
        small = relax.op.divide(
            relax.op.multiply(number(2.0), tangent), relax.op.subtract(number(1.0), square)
        )
        is_small = relax.op.less(relax.op.abs(value), number(1.0))
        return relax.op.where(is_small, small, relax.op.multiply(both, number(0.5)))


class EyeLike(onnx_frontend.EyeLike):
    """EyeLike in another dtype than its input has."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if "dtype" not in attr:
            return super()._impl_v9(bb, inputs, attr, params)
        rows, columns = inputs[0].ty.shape.values
        dtype = onnx_frontend.get_type(attr["dtype"])
        return relax.op.eye(rows, columns, attr.get("k", 0), dtype)


def _of_bools(converter: Any) -> Any:
    """Return a converter that takes bools for numbers on the way; TVM finds no least of them."""

    def convert(version: int, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        original = converter.get_converter(version)
        if str(inputs[0].ty.dtype) != "bool":
            return original(bb, inputs, attr, params)
        numbers = bb.normalize(relax.op.astype(inputs[0], "uint8"))
        reduced = original(bb, onnx_frontend.onnx_input([numbers, *list(inputs)[1:]]), attr, params)
        return relax.op.astype(bb.normalize(reduced), "bool")

    methods = {f"_impl_v{version}": staticmethod(partial(convert, version)) for version in (11, 18)}
    return type(converter.__name__, (converter,), methods)


_BOTH = (onnx_frontend.ReduceMax, onnx_frontend.ReduceMin)
CONVERTERS: Final = {
    **{each.__name__: each for each in (IsInf, Div, Mod, Pow, Cosh, Sinh, EyeLike)},
    **{each.__name__: _of_bools(each) for each in _BOTH},
}


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
