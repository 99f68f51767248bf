"""Trilu: the upper or lower triangle of a matrix."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_trilu(site: NodeSite) -> Expr:
    """Convert Trilu with a diagonal that may lie outside of the matrix and exceed int32."""
    data, diagonal = site.inputs[0], site.find_input(1)
    offset = site.read_values(1)
    sizes = operand_facts.read_extents(data.ty, f"input of {site.label}")[-2:]
    if offset is not None and min(sizes) >= 0:
        rows, columns = sizes
        nearest = min(max(int(offset.item()), -rows), columns)
        diagonal = relax.const(nearest, "int64")
    return site.convert_by_tvm(inputs=[data, diagonal])


OPERATORS: Final = (
    Operator(name="Trilu", since=14, converter=convert_trilu, traits=Trait.FOLDABLE),
)
