"""Normalizations without parameters."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body
from autopipe.errors import ModelError


def convert_lp_normalization(site: NodeSite) -> Expr:
    """Convert LpNormalization: division by the norm, and 0 where the norm is 0."""
    bb = site.bb
    data, axis, power = site.inputs[0], int(site.attr.get("axis", -1)), int(site.attr.get("p", 2))
    if power == 1:
        norm = relax.op.sum(bb.normalize(relax.op.abs(data)), axis, keepdims=True)
    elif power == 2:  # noqa: PLR2004  the only other value in ONNX
        square = bb.normalize(relax.op.multiply(data, data))
        norm = relax.op.sqrt(bb.normalize(relax.op.sum(square, axis, keepdims=True)))
    else:
        raise ModelError(f"{site.name!r} has p = {power}; 1 and 2 are supported")
    norm = bb.normalize(norm)
    none = relax.const(0, data.ty.dtype)
    quotient = bb.normalize(relax.op.divide(data, norm))
    return bb.normalize(relax.op.where(relax.op.equal(norm, none), none, quotient))


OPERATORS: Final = (
    Operator(name="LRN", since=13, converter=onnx_frontend.LocalResponseNormalization),
    Operator(name="LpNormalization", since=22, converter=convert_lp_normalization),
    Operator(
        name="MeanVarianceNormalization",
        since=13,
        body=write_onnx_body,
        traits=Trait.NORMALIZES | Trait.NEEDS_DEFAULTS,
    ),
)
