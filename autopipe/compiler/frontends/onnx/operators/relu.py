"""Relu and its relatives."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.conversion.operand_facts import make_scalar_factory
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG003  TVM's converters have one signature


class Shrink(onnx_frontend.OnnxOpConverter):
    """Shrink; integers are computed in float32, the dtype of its attributes."""

    @classmethod
    def _impl_v9(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        dtype = str(inputs[0].ty.dtype)
        data = inputs[0]
        if not dtype.startswith("float"):
            data = bb.normalize(relax.op.astype(data, "float32"))
        number = make_scalar_factory(data)
        bias, edge = float(attr.get("bias", 0.0)), float(attr.get("lambd", 0.5))
        minus_bias = bb.normalize(relax.op.subtract(data, number(bias)))
        plus_bias = bb.normalize(relax.op.add(data, number(bias)))
        above, below = (
            bb.normalize(compare(data, number(bound)))
            for compare, bound in ((relax.op.greater, edge), (relax.op.less, -edge))
        )
        shrunk = bb.normalize(relax.op.where(below, plus_bias, number(0.0)))
        shrunk = bb.normalize(relax.op.where(above, minus_bias, shrunk))
        return shrunk if dtype.startswith("float") else relax.op.astype(shrunk, dtype)


class ThresholdedRelu(onnx_frontend.OnnxOpConverter):
    """ThresholdedRelu of any float; a product with 0 would convert infinity to NaN."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, number = inputs[0], make_scalar_factory(inputs[0])
        above = bb.normalize(relax.op.greater(data, number(float(attr.get("alpha", 1.0)))))
        return relax.op.where(above, data, number(0.0))


class PRelu(onnx_frontend.OnnxOpConverter):
    """PRelu of any dtype, with a slope of any shape that broadcasts to that of the data."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        return _scale_negatives(bb, *inputs)


class LeakyRelu(onnx_frontend.LeakyRelu):
    """LeakyRelu that returns NaN for -inf with slope 0, where TVM's operator returns 0."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if attr.get("alpha") != 0:
            return super()._impl_v1(bb, inputs, attr, params)
        return _scale_negatives(bb, inputs[0], relax.const(0, str(inputs[0].ty.dtype)))


def _scale_negatives(bb: BlockBuilder, data: Expr, slope: Expr) -> Expr:
    """Multiply negative elements by the slope."""
    scaled_data = bb.normalize(relax.op.multiply(data, slope))
    zero = relax.const(0, str(data.ty.dtype))
    return relax.op.where(bb.normalize(relax.op.less(data, zero)), scaled_data, data)


OPERATORS: Final = (
    Operator(name="LeakyRelu", since=16, converter=LeakyRelu, moments=rules.rectified),
    Operator(name="PRelu", since=16, converter=PRelu, moments=rules.rectified),
    Operator(
        name="Relu",
        since=14,
        converter=onnx_frontend.Relu,
        moments=rules.rectified,
        traits=Trait.FOLDABLE | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS | Trait.COMPARES,
    ),
    Operator(name="Shrink", since=9, converter=Shrink),
    Operator(
        name="ThresholdedRelu", since=22, converter=ThresholdedRelu, traits=Trait.EXACT_SPECIALS
    ),
)
