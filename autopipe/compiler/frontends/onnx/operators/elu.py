"""Elu, Celu and Selu."""

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
from autopipe.compiler.frontends.onnx.operator import Operator

# ruff: noqa: ARG003  TVM's converters have one signature

_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875


class Elu(onnx_frontend.OnnxOpConverter):
    """Elu of any float."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        return _compute_elu(bb, inputs[0], float(attr.get("alpha", 1.0)), 1.0)


class Celu(onnx_frontend.OnnxOpConverter):
    """Celu; ONNX's function body overflows with x / alpha and returns shape [1] for a scalar."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, number = inputs[0], make_scalar_factory(inputs[0])
        alpha = float(attr.get("alpha", 1.0))
        quotient = bb.normalize(relax.op.divide(data, number(alpha)))
        below = relax.op.subtract(bb.normalize(relax.op.exp(quotient)), number(1.0))
        below = bb.normalize(relax.op.multiply(bb.normalize(below), number(alpha)))
        return relax.op.where(bb.normalize(relax.op.greater(data, number(0.0))), data, below)


class Selu(onnx_frontend.OnnxOpConverter):
    """Selu of any float."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        alpha = float(attr.get("alpha", _SELU_ALPHA))
        return _compute_elu(bb, inputs[0], alpha, float(attr.get("gamma", _SELU_GAMMA)))


def _compute_elu(bb: BlockBuilder, data: Expr, alpha: float, gamma: float) -> Expr:
    number = make_scalar_factory(data)
    below = relax.op.subtract(bb.normalize(relax.op.exp(data)), number(1.0))
    below = bb.normalize(relax.op.multiply(below, number(alpha * gamma)))
    above = data if gamma == 1 else bb.normalize(relax.op.multiply(data, number(gamma)))
    return relax.op.where(bb.normalize(relax.op.greater(data, number(0.0))), above, below)


OPERATORS: Final = (
    Operator(name="Celu", since=28, converter=Celu),
    Operator(name="Elu", since=22, converter=Elu, moments=rules.rectified),
    Operator(name="Selu", since=22, converter=Selu, moments=rules.rectified),
)
