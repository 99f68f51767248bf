"""Gather and its relatives: elements at computed indices."""

from typing import Final

import numpy as np
from onnx import NodeProto
from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.frontends.onnx.conversion.places import (
    ALONG_AXIS,
    INDEX_LISTS,
    Limits,
    PlaceRule,
    Shapes,
    clip_before,
    limit_along_axis,
    limit_index_lists,
)
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Shape, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import Array


def convert_gather(site: NodeSite) -> Expr:
    """Convert Gather; a lookup at constant evenly spaced indices becomes a slice, which fuses.

    Example: x[:, 3] of [64, 26], a lookup of the third column, is x[:, 3:4] in another shape.
    """
    axis, data = int(site.attr.get("axis", 0)), site.inputs[0]
    sizes = operand_facts.read_sizes(data.ty) if isinstance(data.ty, relax.TensorType) else None
    extent = sizes[axis] if sizes and not isinstance(data, GenericConst) else None
    places = site.read_values(1)
    even = _find_even_places(places, extent) if isinstance(extent, int) else None
    if places is None or even is None:
        return site.convert_by(onnx_frontend.Gather)
    (first, last, step), axes = even, [axis % data.ty.ndim]
    part = relax.op.strided_slice(data, axes, [first], [last + 1], [step])
    return part if places.ndim else relax.op.squeeze(site.bb.normalize(part), axes)


def _find_even_places(places: Array | None, extent: int) -> tuple[int, int, int] | None:
    """Return (first, last, step) of evenly spaced indices, None if they are not."""
    if places is None or places.ndim > 1 or places.size == 0:
        return None
    at = np.where(places < 0, places + extent, places).ravel()
    step = int(at[1] - at[0]) if at.size > 1 else 1
    even = step > 0 and bool((np.diff(at) == step).all())
    return (int(at[0]), int(at[-1]), step) if even else None


def _limit_rows(node: NodeProto, size_names: set[str], shape: Shape) -> int | None:
    """Return the rows of the table if the index is computed from shapes."""
    return shape[0] if node.input[1] in size_names else None


def _limit_places(shapes: Shapes, attr: Attributes) -> Limits:
    return [(1, shapes[0][int(attr.get("axis", 0))])]


_ROWS: Final = PlaceRule(_limit_places)


OPERATORS: Final = (
    Operator(
        name="Gather",
        since=13,
        places=_ROWS,
        converter=clip_before(convert_gather, limit_along_axis),
        compute_sizes=arithmetic.move_numbers,
        table_limit=_limit_rows,
        weights={0: "table"},
        traits=Trait.FOLDABLE
        | Trait.COMPUTES_SIZES
        | Trait.KEEPS_ERROR
        | Trait.EXACT_SPECIALS
        | Trait.LOOKS_UP,
    ),
    Operator(
        name="GatherElements",
        since=13,
        places=ALONG_AXIS,
        converter=clip_before(onnx_frontend.GatherElements, limit_along_axis),
        traits=Trait.FOLDABLE | Trait.LOOKS_UP,
    ),
    Operator(
        name="GatherND",
        since=13,
        places=INDEX_LISTS,
        converter=clip_before(onnx_frontend.GatherND, limit_index_lists),
        traits=Trait.FOLDABLE,
    ),
)
