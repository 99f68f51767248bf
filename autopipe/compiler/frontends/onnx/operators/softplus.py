"""Softplus, Softsign and Mish."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.operand_facts import make_scalar_factory
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator

_TERMS: Final = {"float16": 4, "float32": 8, "float64": 17}
"""Terms of the series in `_compute_log1p`, by dtype, up to its precision."""


def convert_softplus(site: NodeSite) -> Expr:
    """Convert Softplus with full precision for small results."""
    return _compute_softplus(site.bb, site.inputs[0])


def convert_mish(site: NodeSite) -> Expr:
    """Convert Mish with this Softplus."""
    factor = site.bb.normalize(relax.op.tanh(_compute_softplus(site.bb, site.inputs[0])))
    return relax.op.multiply(site.inputs[0], factor)


def _compute_softplus(bb: BlockBuilder, data: Expr) -> Expr:
    small = relax.op.exp(bb.normalize(relax.op.negative(bb.normalize(relax.op.abs(data)))))
    positive = bb.normalize(relax.op.maximum(data, make_scalar_factory(data)(0.0)))
    return bb.normalize(relax.op.add(positive, _compute_log1p(bb, bb.normalize(small))))


def _compute_log1p(bb: BlockBuilder, data: Expr) -> Expr:
    """Return log(1 + x) for x from 0 to 1 by the series of twice the artanh of x / (2 + x).

    The sum 1 + x would lose the low bits of a small x.
    """
    number = make_scalar_factory(data)
    ratio = bb.normalize(relax.op.divide(data, bb.normalize(relax.op.add(data, number(2.0)))))
    square = bb.normalize(relax.op.multiply(ratio, ratio))
    terms = _TERMS[str(data.ty.dtype)]
    total: Expr = number(2.0 / (2 * terms - 1))
    for term in reversed(range(terms - 1)):
        product = bb.normalize(relax.op.multiply(total, square))
        total = bb.normalize(relax.op.add(product, number(2.0 / (2 * term + 1))))
    return bb.normalize(relax.op.multiply(ratio, total))


OPERATORS: Final = (
    Operator(name="Mish", since=22, converter=convert_mish, moments=rules.rectified),
    Operator(name="Softplus", since=22, converter=convert_softplus, moments=rules.rectified),
    Operator(name="Softsign", since=22, saturation_slope=1.0),
)
