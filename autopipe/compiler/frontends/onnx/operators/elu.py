"""Elu, Celu and Selu."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.operand_facts import make_scalar_factory
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator

_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875


def convert_elu(site: NodeSite) -> Expr:
    """Convert Elu of any float."""
    return _compute_elu(site.bb, site.inputs[0], float(site.attr.get("alpha", 1.0)), 1.0)


def convert_celu(site: NodeSite) -> Expr:
    """Convert Celu; ONNX's body overflows with x / alpha, and returns shape [1] for a scalar."""
    bb = site.bb
    data, number = site.inputs[0], make_scalar_factory(site.inputs[0])
    alpha = float(site.attr.get("alpha", 1.0))
    quotient = bb.normalize(relax.op.divide(data, number(alpha)))
    below = relax.op.subtract(bb.normalize(relax.op.exp(quotient)), number(1.0))
    below = bb.normalize(relax.op.multiply(bb.normalize(below), number(alpha)))
    return relax.op.where(bb.normalize(relax.op.greater(data, number(0.0))), data, below)


def convert_selu(site: NodeSite) -> Expr:
    """Convert Selu of any float."""
    alpha = float(site.attr.get("alpha", _SELU_ALPHA))
    return _compute_elu(site.bb, site.inputs[0], alpha, float(site.attr.get("gamma", _SELU_GAMMA)))


def _compute_elu(bb: BlockBuilder, data: Expr, alpha: float, gamma: float) -> Expr:
    number = make_scalar_factory(data)
    below = relax.op.subtract(bb.normalize(relax.op.exp(data)), number(1.0))
    below = bb.normalize(relax.op.multiply(below, number(alpha * gamma)))
    above = data if gamma == 1 else bb.normalize(relax.op.multiply(data, number(gamma)))
    return relax.op.where(bb.normalize(relax.op.greater(data, number(0.0))), above, below)


OPERATORS: Final = (
    Operator(name="Celu", since=28, converter=convert_celu),
    Operator(name="Elu", since=22, converter=convert_elu, moments=rules.rectified),
    Operator(name="Selu", since=22, converter=convert_selu, moments=rules.rectified),
)
