"""DepthToSpace and SpaceToDepth."""

from typing import Final

from tvm import relax, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    as_int64,
    as_integer,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

_ORDERS: Final = {"DCR": [0, 3, 5, 1, 2, 4], "CRD": [0, 1, 3, 5, 2, 4]}
"""Axis permutation of the blocks in SpaceToDepth."""


def convert_space_to_depth(site: NodeSite) -> Expr:
    """Convert SpaceToDepth in either order of the blocks."""
    data, block = site.inputs[0], int(site.attr["blocksize"])
    batch, channels, *image = site.read_sizes()
    if site.attr.get("mode", b"DCR") == b"DCR" and not is_open([batch, *image]):
        return site.convert_by_tvm()
    rows, columns = (
        site.extents.simple(tirx.floordiv(as_int64(size), as_integer(block))) for size in image
    )
    order = _ORDERS[operand_facts.decode_text(site.attr.get("mode", b"DCR"))]
    parts = relax.op.reshape(data, to_shape([batch, channels, rows, block, columns, block]))
    transposed_parts = site.bb.emit(relax.op.permute_dims(site.bb.emit(parts), order))
    return relax.op.reshape(
        transposed_parts, to_shape([batch, channels * block * block, rows, columns])
    )


OPERATORS: Final = (
    Operator(name="DepthToSpace", since=28, traits=Trait.KEEPS_ELEMENTS),
    Operator(
        name="SpaceToDepth",
        since=28,
        converter=convert_space_to_depth,
        traits=Trait.KEEPS_ELEMENTS,
    ),
)
