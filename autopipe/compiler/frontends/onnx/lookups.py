"""What shapes have to be where elements are read or written at places that are computed.

A place is cut to be inside of an axis, and an axis without elements has no inside. And what is
read for each place, from other axes or from updates, has to be there. ONNX Runtime ends in an error
where that is not so.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tvm import tirx

from autopipe.compiler.frontends.onnx import known
from autopipe.errors import ModelError

OUTSIDE: Final = "has places where there is nothing: an axis is empty, or sizes do not fit"
"""What is wrong with a node whose limits are exceeded."""

_ALONG_ONE: Final = frozenset({"GatherElements", "Scatter", "ScatterElements"})
"""Operators whose places are along one axis; along the others they are where they stand."""
_LISTED: Final = frozenset({"GatherND", "ScatterND"})
"""Operators whose places are lists, one index for each axis."""
_IMAGE: Final = 2
"""The first axis of an image, behind batch and channels."""

Limits = list[tuple[Any, Any]]
"""Pairs of sizes of which the first may not exceed the second."""


def check(kind: str, inputs: Sequence[Any], attr: Mapping[str, Any]) -> None:
    """Refuse a node whose sizes are known and exceed their limits. Raises ModelError."""
    shapes = shapes_of(inputs)
    if shapes is None or not all(isinstance(size, int) for shape in shapes for size in shape):
        return
    exceeded = any(size > limit for size, limit in limits(kind, shapes, attr))
    if exceeded and math.prod(counts(kind, shapes)):
        raise ModelError(f"{kind} {known.name(attr)} {OUTSIDE}")


def shapes_of(inputs: Sequence[Any]) -> list[list[Any]] | None:
    """Return the shapes of tensors, integers where they are fixed; None where one is unknown."""
    shapes = []
    for value in inputs:
        sizes = getattr(getattr(value.ty, "shape", None), "values", None)
        if sizes is None:
            return None
        shapes.append([int(size) if isinstance(size, tirx.IntImm) else size for size in sizes])
    return shapes


def limits(kind: str, shapes: Sequence[Sequence[Any]], attr: Mapping[str, Any]) -> Limits:
    """Return the limits of a node's sizes where it reads anything at all.

    `shapes` are those of the data, of the places and, where there are some, of the updates.
    """
    data, places, *updates = shapes
    if kind == "ReverseSequence":
        return [(data[int(attr.get("batch_axis", 1))], places[0])]
    if kind == "RoiAlign":
        return [(places[0], updates[0][0]), (1, data[0]), *((1, size) for size in data[_IMAGE:])]
    if kind == "GridSample":
        return [(places[0], data[0]), *((1, size) for size in data[_IMAGE:])]
    if kind == "Gather":
        return [(1, data[int(attr.get("axis", 0))])]
    if kind in _ALONG_ONE:
        axis = int(attr.get("axis", 0)) % len(data)
        needed = [1 if at == axis else size for at, size in enumerate(places)]
        pairs = list(zip(needed, data, strict=True))
        return pairs + [pair for one in updates for pair in zip(places, one, strict=True)]
    first, count = int(attr.get("batch_dims", 0)), int(places[-1])
    pairs = list(zip(places[:first], data[:first], strict=True))
    pairs += [(1, size) for size in data[first : first + count]]
    moved = [*places[:-1], *data[count:]]
    return pairs + [pair for one in updates for pair in zip(moved, one, strict=True)]


def counts(kind: str, shapes: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return sizes of which one is 0 where nothing is read."""
    data, places, *_ = shapes
    if kind == "ReverseSequence":
        return data
    if kind == "RoiAlign":
        return places[:1]
    return places[:-1] if kind in _LISTED | {"GridSample"} else places
