"""DepthToSpace and SpaceToDepth."""

from typing import Final

from tvm import relax, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    as_integer,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG001  TVM's converters have one signature

_ORDERS: Final = {"DCR": [0, 3, 5, 1, 2, 4], "CRD": [0, 1, 3, 5, 2, 4]}
"""Axis permutation of the blocks in SpaceToDepth."""


class SpaceToDepth(onnx_frontend.SpaceToDepth):
    """SpaceToDepth in either order of the blocks."""

    @classmethod
    def _impl_v28(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if attr.get("mode", b"DCR") == b"DCR":
            return super()._impl_v1(bb, inputs, attr, params)
        size = int(attr["blocksize"])
        batch, depth, height, width = (int(dim) for dim in inputs[0].ty.shape.values)
        high, wide = height // size, width // size
        blocks = relax.op.reshape(inputs[0], (batch, depth, high, size, wide, size))
        transposed_blocks = relax.op.permute_dims(bb.normalize(blocks), [0, 1, 3, 5, 2, 4])
        return relax.op.reshape(transposed_blocks, (batch, depth * size * size, high, wide))


def convert_dynamic_space_to_depth(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """SpaceToDepth."""
    data, block = inputs[0], int(attr["blocksize"])
    batch, channels, *image = extents.shape(data, describe_node("SpaceToDepth", attr))
    if not is_open([batch, *image]):
        return None
    rows, columns = (
        extents.simple(tirx.floordiv(as_int64(size), as_integer(block))) for size in image
    )
    parts = bb.emit(
        relax.op.reshape(data, to_shape([batch, channels, rows, block, columns, block]))
    )
    convert_dynamic_reverse_sequence = bb.emit(
        relax.op.permute_dims(parts, _ORDERS[operand_facts.decode_text(attr.get("mode", b"DCR"))])
    )
    return relax.op.reshape(
        convert_dynamic_reverse_sequence, to_shape([batch, channels * block * block, rows, columns])
    )


OPERATORS: Final = (
    Operator(
        name="DepthToSpace",
        since=28,
        converter=onnx_frontend.DepthToSpace,
        traits=Trait.KEEPS_ELEMENTS,
    ),
    Operator(
        name="SpaceToDepth",
        since=28,
        converter=SpaceToDepth,
        convert_dynamic=convert_dynamic_space_to_depth,
        traits=Trait.KEEPS_ELEMENTS,
    ),
)
