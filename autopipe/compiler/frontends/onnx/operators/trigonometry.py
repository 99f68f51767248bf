"""Trigonometric and hyperbolic functions."""

from functools import partial
from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ANN401, ARG003  TVM's converters have no types, and one signature


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


OPERATORS: Final = (
    Operator(
        name="Acos",
        since=22,
        converter=onnx_frontend.Acos,
    ),
    Operator(
        name="Acosh",
        since=22,
        converter=onnx_frontend.Acosh,
        traits=Trait.SINGULAR_AT_ZERO,
    ),
    Operator(
        name="Asin",
        since=22,
        converter=onnx_frontend.Asin,
    ),
    Operator(
        name="Asinh",
        since=22,
        converter=onnx_frontend.Asinh,
    ),
    Operator(
        name="Atan",
        since=22,
        converter=onnx_frontend.Atan,
    ),
    Operator(
        name="Atanh",
        since=22,
        converter=onnx_frontend.Atanh,
        traits=Trait.SINGULAR_AT_ZERO,
    ),
    Operator(
        name="Cos",
        since=22,
        converter=onnx_frontend.Cos,
        traits=Trait.FOLDABLE,
    ),
    Operator(
        name="Cosh",
        since=22,
        converter=Cosh,
    ),
    Operator(
        name="Sin",
        since=22,
        converter=onnx_frontend.Sin,
        traits=Trait.FOLDABLE,
    ),
    Operator(
        name="Sinh",
        since=22,
        converter=Sinh,
    ),
    Operator(
        name="Tan",
        since=22,
        converter=onnx_frontend.Tan,
        traits=Trait.FOLDABLE,
    ),
    Operator(
        name="Tanh",
        since=13,
        converter=onnx_frontend.Tanh,
        traits=Trait.FOLDABLE,
        saturation_slope=1.0,
    ),
)
