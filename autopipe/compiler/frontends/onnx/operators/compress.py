"""Compress: select slices along an axis by a boolean condition."""

from typing import Final

import numpy as np
from tvm import ir, relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
)
from autopipe.compiler.frontends.onnx.conversion.operand_facts import (
    read_node_name,
    require_constant,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    multiply_sizes,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.nonzero_places import (
    find_nonzero_places,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

# ruff: noqa: ARG001  TVM's converters have one signature


class Compress(onnx_frontend.OnnxOpConverter):
    """Compress by a constant condition."""

    @classmethod
    def _impl_v9(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        indices = np.flatnonzero(require_constant("Compress", inputs[1], attr, params))
        data, axis = inputs[0], attr.get("axis")
        if axis is None:
            data, axis = bb.normalize(relax.op.reshape(data, [-1])), 0
        return bb.normalize(
            relax.op.take(data, relax.const(indices.astype("int64"), "int64"), axis)
        )


def convert_dynamic_compress(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Compress by a computed condition; None for a constant one."""
    data, condition = inputs[:2]
    if isinstance(condition, ir.GenericConst):
        return None
    label = describe_node("Compress", attr)
    axis, sizes = attr.get("axis"), extents.shape(data, label)
    if axis is None:
        data = bb.emit(relax.op.reshape(data, to_shape([multiply_sizes(sizes)])))
        axis, sizes = 0, [multiply_sizes(sizes)]
    condition_sizes = extents.shape(condition, label)
    if extents.truth(condition_sizes[0] <= sizes[int(axis)]) is not True:
        raise ModelError(f"{label}: the condition may be longer than the axis")
    indices = find_nonzero_places(extents, bb, condition, condition_sizes, read_node_name(attr))
    return relax.op.take(data, indices, int(axis))


OPERATORS: Final = (
    Operator(
        name="Compress",
        since=28,
        converter=Compress,
        convert_dynamic=convert_dynamic_compress,
        deciding=(1,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
