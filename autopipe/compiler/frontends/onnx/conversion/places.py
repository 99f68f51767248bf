"""Operators that read and write at computed indices: constraints on sizes, and clipped indices.

An index out of range is undefined in ONNX and an error in onnxruntime. TVM's kernels would access
memory out of bounds. So computed indices are clipped to the tensor, which is impossible if an axis
has size 0. And the elements that are read for each index, from other axes or from updates, have to
exist. onnxruntime returns an error if a constraint is violated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.site import Converter, NodeSite
from autopipe.errors import ModelError

_OUTSIDE: Final = "has places where there is nothing: an axis is empty, or sizes do not fit"
"""End of the message for a node that exceeds its limits."""

Limits = Sequence[tuple[Size, Size]]
"""Pairs of a size and its limit."""

Shapes = Sequence[Sequence[Size]]
"""The shapes of the data, of the indices and of the other inputs."""


def _list_all_places(shapes: Shapes) -> Sequence[Size]:
    return shapes[1]


@dataclass(frozen=True, slots=True)
class PlaceRule:
    """Constraints on the sizes of an operator that reads or writes at computed indices."""

    list_limits: Callable[[Shapes, Attributes], Limits]
    """Return pairs of a size and its limit, which hold if any index is read."""
    list_counts: Callable[[Shapes], Sequence[Size]] = _list_all_places
    """Return sizes of which one is 0 if no index is read."""


def require_places(rule: PlaceRule, site: NodeSite) -> None:
    """Require that sizes of a node do not exceed their limits: at run time if they are dynamic.

    Raises ModelError if they do at every size.
    """
    shapes = [operand_facts.read_sizes(value.ty) for value in site.inputs]
    sizes = [list(map(site.extents.simple, shape)) for shape in shapes if shape is not None]
    if len(sizes) == len(shapes):
        limits, counts = rule.list_limits(sizes, site.attr), rule.list_counts(sizes)
        site.extents.require(site.bb, limits, f"{site.label} {_OUTSIDE}", counts)


def _limit_along_axis(shapes: Shapes, attr: Attributes) -> Limits:
    data, places, *updates = shapes
    axis = int(attr.get("axis", 0)) % len(data)
    required_sizes = [1 if at == axis else size for at, size in enumerate(places)]
    pairs = list(zip(required_sizes, data, strict=True))
    return pairs + [pair for one in updates for pair in zip(places, one, strict=True)]


def _limit_lists(shapes: Shapes, attr: Attributes) -> Limits:
    data, places, *updates = shapes
    first, count = int(attr.get("batch_dims", 0)), int(places[-1])
    pairs = list(zip(places[:first], data[:first], strict=True))
    pairs += [(1, size) for size in data[first : first + count]]
    update_shape = [*places[:-1], *data[count:]]
    return pairs + [pair for one in updates for pair in zip(update_shape, one, strict=True)]


def list_but_last(shapes: Shapes) -> Sequence[Size]:
    """Return the sizes of an index tensor without its last axis, the coordinates."""
    return shapes[1][:-1]


ALONG_AXIS: Final = PlaceRule(_limit_along_axis)
"""Rule of indices along one axis; the other coordinates are those of the index tensor."""
INDEX_LISTS: Final = PlaceRule(_limit_lists, list_but_last)
"""Rule of index tuples, one index for each axis."""


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
    return site.bb.normalize(relax.op.minimum(relax.op.maximum(indices, first), last))


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


def count_from_end(bb: BlockBuilder, indices: Expr, extent: Expr) -> Expr:
    """Convert indices to int64 from 0 on; negative ones count from the end of an extent."""
    places = bb.normalize(relax.op.astype(indices, "int64"))
    is_negative = places < relax.const(0, "int64")
    return bb.normalize(relax.op.where(is_negative, places + extent, places))


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
