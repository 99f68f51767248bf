"""Sigmoid and its relatives."""

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
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body

# ruff: noqa: ARG003  TVM's converters have one signature


class HardSigmoid(onnx_frontend.OnnxOpConverter):
    """HardSigmoid, clipped to 0 and 1 in the order that propagates NaN."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, number = inputs[0], make_scalar_factory(inputs[0])
        product = relax.op.multiply(data, number(float(attr.get("alpha", 0.2))))
        line = bb.normalize(relax.op.add(product, number(float(attr.get("beta", 0.5)))))
        low = bb.normalize(relax.op.minimum(number(1.0), line))
        return relax.op.maximum(number(0.0), low)


OPERATORS: Final = (
    Operator(
        name="HardSigmoid",
        since=22,
        converter=HardSigmoid,
        moments=rules.squashed,
        traits=Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="HardSwish", since=22, converter=onnx_frontend.HardSwish, moments=rules.rectified
    ),
    Operator(
        name="Sigmoid",
        since=13,
        converter=onnx_frontend.Sigmoid,
        moments=rules.squashed,
        traits=Trait.FOLDABLE,
        saturation_slope=0.25,
    ),
    Operator(name="SwiGLU", since=28, body=write_onnx_body),
    Operator(name="Swish", since=24, body=write_onnx_body),
)
