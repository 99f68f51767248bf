"""Sign."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_sign(site: NodeSite) -> Expr:
    """Convert Sign that propagates NaN."""
    data = site.inputs[0]
    sign = site.bb.normalize(site.convert_by_tvm())
    if not str(data.ty.dtype).startswith("float"):
        return sign
    return relax.op.where(site.bb.normalize(relax.op.isnan(data)), data, sign)


OPERATORS: Final = (
    Operator(
        name="Sign", since=13, converter=convert_sign, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS
    ),
)
