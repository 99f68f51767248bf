"""Converters of operators that read and write at computed indices.

An index out of range is undefined in ONNX and an error in onnxruntime. TVM's kernels would access
memory out of bounds. So computed indices are clipped to the tensor.
"""

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    BlockBuilder,
    Inputs,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.site import Converter, NodeSite
from autopipe.errors import ModelError


def limit_to_extents(site: NodeSite, indices: Expr, extents: Sequence[Size], label: str) -> Expr:
    """Clip indices to an extent, or to one extent for each entry of their last axis.

    Negative indices count from the end, and stay. Raises `ModelError` for constants out of range.
    """
    static_extents = [extent for extent in extents if isinstance(extent, int)]
    if len(static_extents) < len(extents):
        return _limit_to_open_extents(site.bb, indices, extents)
    most = np.array(static_extents if len(static_extents) > 1 else static_extents[0])
    values = operand_facts.read_values(indices, site.params)
    if values is not None:
        if ((values < -most) | (values >= most)).any():
            raise ModelError(f"{label} has places outside of {list(extents)}")
        return indices
    dtype = str(indices.ty.dtype)
    first, last = (relax.const(bound, dtype) for bound in (-most, most - 1))
    at_least = site.bb.normalize(relax.op.maximum(indices, first))
    return site.bb.normalize(relax.op.minimum(at_least, last))


def _limit_to_open_extents(bb: BlockBuilder, indices: Expr, extents: Sequence[Size]) -> Expr:
    """Clip indices to extents of which some are dynamic."""
    dtype = str(indices.ty.dtype)

    def clip(indices: te.Tensor, *extents: Expr) -> te.Tensor:
        def at(*index: Expr) -> Expr:
            extent = extents[0]
            for entry, next_extent in enumerate(extents[1:], 1):
                extent = tirx.if_then_else(index[-1] == entry, next_extent, extent)
            extent = tirx.Cast(dtype, extent)
            return tirx.max(tirx.min(indices[index], extent - 1), -extent)

        return te.compute(indices.shape, at, name="within")

    extent_arguments = (
        tirx.const(size, "int64") if isinstance(size, int) else size for size in extents
    )
    return bb.emit_te(clip, indices, *extent_arguments, primfunc_name_hint="within")


Clip = Callable[[NodeSite, Sequence[Size]], Inputs]
"""Clips the indices of a node: (site, shape of the data). Returns all inputs."""


def clip_before(converter: Converter, clip: Clip) -> Converter:
    """Return a converter that clips indices to the tensor first."""

    def convert(site: NodeSite) -> Expr:
        shape = operand_facts.read_sizes(site.inputs[0].ty)
        return site.convert_by(converter, None if shape is None else clip(site, shape))

    return convert


def limit_along_axis(site: NodeSite, shape: Sequence[Size]) -> Inputs:
    """Clip the second input, indices along one axis, and return all inputs."""
    data, indices, *other_inputs = site.inputs
    if isinstance(indices.ty, relax.ShapeType):
        return site.inputs
    extent = shape[int(site.attr.get("axis", 0))]
    clipped_indices = limit_to_extents(site, indices, [extent], _label_indices(site))
    return [data, clipped_indices, *other_inputs]


def limit_index_lists(site: NodeSite, shape: Sequence[Size]) -> Inputs:
    """Clip the second input, index tuples over several axes, and return all inputs."""
    data, indices, *other_inputs = site.inputs
    label, first = _label_indices(site), int(site.attr.get("batch_dims", 0))
    count = operand_facts.read_extents(indices.ty, label)[-1]
    if count < 0:
        raise ModelError(f"{label} has a last axis of dynamic size")
    clipped_indices = limit_to_extents(site, indices, shape[first : first + count], label)
    return [data, clipped_indices, *other_inputs]


def _label_indices(site: NodeSite) -> str:
    return f"the second input of {site.name!r}"
