"""CumSum and CumProd: prefix sums and products along an axis."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_cum_prod(site: NodeSite) -> Expr:
    """Convert CumProd: cumulative products along an axis."""
    bb = site.bb
    data = site.inputs[0]
    axis = int(site.require_values(1, f"axis of {site.name!r}").item())
    if site.attr.get("reverse", 0):
        data = bb.normalize(relax.op.flip(data, axis))
    product = bb.normalize(
        relax.op.cumprod(data, axis, exclusive=bool(site.attr.get("exclusive", 0)))
    )
    return bb.normalize(relax.op.flip(product, axis)) if site.attr.get("reverse", 0) else product


OPERATORS: Final = (
    Operator(name="CumProd", since=26, converter=convert_cum_prod),
    Operator(name="CumSum", since=14, traits=Trait.FOLDABLE),
)
