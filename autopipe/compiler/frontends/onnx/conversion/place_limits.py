"""What shapes have to be where elements are read or written at places that are computed.

A place is cut to be inside of an axis, and an axis without elements has no inside. And what is
read for each place, from other axes or from updates, has to be there. ONNX Runtime ends in an error
where that is not so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tvm import tirx

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, Inputs, Size
from autopipe.errors import ModelError

OUTSIDE: Final = "has places where there is nothing: an axis is empty, or sizes do not fit"
"""What is wrong with a node whose limits are exceeded."""

Limits = Sequence[tuple[Size, Size]]
"""Pairs of sizes of which the first may not exceed the second."""

Shapes = Sequence[Sequence[Size]]
"""The shapes of the data, of the places and of the other inputs."""


def _list_all_places(shapes: Shapes) -> Sequence[Size]:
    return shapes[1]


@dataclass(frozen=True, slots=True)
class PlaceRule:
    """What holds for the sizes of an operator that reads or writes at computed places."""

    list_limits: Callable[[Shapes, Attributes], Limits]
    """Return the limits where it reads anything at all."""
    list_counts: Callable[[Shapes], Sequence[Size]] = _list_all_places
    """Return sizes of which one is 0 where nothing is read."""


def check_places(name: str, rule: PlaceRule, inputs: Inputs, attr: Attributes) -> None:
    """Refuse a node whose sizes are known and exceed their limits. Raises ModelError."""
    shapes = read_shapes(inputs)
    if shapes is None or not all(isinstance(size, int) for shape in shapes for size in shape):
        return
    exceeded = any(size > limit for size, limit in rule.list_limits(shapes, attr))
    if exceeded and all(rule.list_counts(shapes)):
        raise ModelError(f"{name} {operand_facts.quote_node_name(attr)} {OUTSIDE}")


def read_shapes(inputs: Inputs) -> list[list[Size]] | None:
    """Return the shapes of tensors, integers where they are fixed; None where one is unknown."""
    shapes = []
    for value in inputs:
        sizes = getattr(getattr(value.ty, "shape", None), "values", None)
        if sizes is None:
            return None
        shapes.append([int(size) if isinstance(size, tirx.IntImm) else size for size in sizes])
    return shapes


def _limit_along_axis(shapes: Shapes, attr: Attributes) -> Limits:
    data, places, *updates = shapes
    axis = int(attr.get("axis", 0)) % len(data)
    needed = [1 if at == axis else size for at, size in enumerate(places)]
    pairs = list(zip(needed, data, strict=True))
    return pairs + [pair for one in updates for pair in zip(places, one, strict=True)]


def _limit_lists(shapes: Shapes, attr: Attributes) -> Limits:
    data, places, *updates = shapes
    first, count = int(attr.get("batch_dims", 0)), int(places[-1])
    pairs = list(zip(places[:first], data[:first], strict=True))
    pairs += [(1, size) for size in data[first : first + count]]
    moved = [*places[:-1], *data[count:]]
    return pairs + [pair for one in updates for pair in zip(moved, one, strict=True)]


def list_but_last(shapes: Shapes) -> Sequence[Size]:
    """Return the sizes of places whose last axis is the coordinates of each."""
    return shapes[1][:-1]


ALONG_AXIS: Final = PlaceRule(_limit_along_axis)
"""Places are along one axis; along the others they are where they stand."""
INDEX_LISTS: Final = PlaceRule(_limit_lists, list_but_last)
"""Places are lists, one index for each axis."""
