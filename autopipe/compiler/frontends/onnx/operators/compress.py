"""Compress: select slices along an axis by a boolean condition."""

from typing import Final

import numpy as np
from tvm import ir, relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import multiply_sizes, to_shape
from autopipe.compiler.frontends.onnx.dynamic_sizes.nonzero_places import find_nonzero_places
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def convert_compress(site: NodeSite) -> Expr:
    """Convert Compress by a constant condition."""
    indices = np.flatnonzero(site.require_constant(1))
    data, axis = site.inputs[0], site.attr.get("axis")
    if axis is None:
        data, axis = site.bb.normalize(relax.op.reshape(data, [-1])), 0
    return site.bb.normalize(
        relax.op.take(data, relax.const(indices.astype("int64"), "int64"), axis)
    )


def convert_dynamic_compress(site: NodeSite) -> Expr | None:
    """Convert Compress by a computed condition; None for a constant one."""
    extents = site.extents
    data, condition = site.inputs[:2]
    if isinstance(condition, ir.GenericConst):
        return None
    label = site.label
    axis, sizes = site.attr.get("axis"), extents.shape(data, label)
    if axis is None:
        data = site.bb.emit(relax.op.reshape(data, to_shape([multiply_sizes(sizes)])))
        axis, sizes = 0, [multiply_sizes(sizes)]
    condition_sizes = extents.shape(condition, label)
    if extents.truth(condition_sizes[0] <= sizes[int(axis)]) is not True:
        raise ModelError(f"{label}: the condition may be longer than the axis")
    indices = find_nonzero_places(site, condition, condition_sizes)
    return relax.op.take(data, indices, int(axis))


OPERATORS: Final = (
    Operator(
        name="Compress",
        since=28,
        converter=convert_compress,
        convert_dynamic=convert_dynamic_compress,
        deciding=(1,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
