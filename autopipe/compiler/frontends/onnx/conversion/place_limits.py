"""Constraints on the shapes of operators that read or write at computed indices.

Indices are clipped to an axis, which is impossible if the axis has size 0. And the elements that
are read for each index, from other axes or from updates, have to exist. onnxruntime returns an
error if a constraint is violated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, Inputs, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.errors import ModelError

OUTSIDE: Final = "has places where there is nothing: an axis is empty, or sizes do not fit"
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


def check_places(rule: PlaceRule, site: NodeSite) -> None:
    """Raise ModelError if static sizes of a node exceed their limits."""
    shapes = read_shapes(site.inputs)
    if shapes is None or not all(isinstance(size, int) for shape in shapes for size in shape):
        return
    is_exceeded = any(size > limit for size, limit in rule.list_limits(shapes, site.attr))
    if is_exceeded and all(rule.list_counts(shapes)):
        raise ModelError(f"{site.label} {OUTSIDE}")


def read_shapes(inputs: Inputs) -> list[list[Size]] | None:
    """Return the shapes of tensors, integers for static sizes; None if one is unknown."""
    shapes = [operand_facts.read_sizes(value.ty) for value in inputs]
    known_shapes = [shape for shape in shapes if shape is not None]
    return known_shapes if len(known_shapes) == len(shapes) else None


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
