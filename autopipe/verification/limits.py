"""Finds the inputs that select rows of a table, and how many rows there are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autopipe.artifacts.model import ImportedModel
from autopipe.verification.reference import MODEL

_KEEPS_VALUES = {
    "Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_SELECTS = {"Gather", "GatherElements"}


def index_limits(model: Path) -> dict[str, int]:
    """Return, by input name, the number of entries that the input's values choose from.

    `model` is the artifact of *import*. An input that selects from a table of unknown size is
    limited to its first entry.
    """
    source = model / MODEL
    if not source.exists():
        return ImportedModel.read(model).selects
    import onnx

    graph = onnx.load(source, load_external_data=False).graph
    limits: dict[str, int] = {}
    _collect(graph, {}, {value.name: {value.name} for value in graph.input}, limits)
    return limits


def _collect(
    graph: Any,  # noqa: ANN401  protobuf
    shapes: Mapping[str, tuple[int, ...]],
    carries: dict[str, set[str]],
    limits: dict[str, int],
) -> None:
    """Find the limits in a graph, given the inputs of the model that its values are made of."""
    shapes = {**shapes, **_shapes(graph)}
    for node in graph.node:
        for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
            own = [value.name for value in body.input]
            given = node.input[len(node.input) - len(own) :]  # of Loop: rounds and condition, too
            inside = {
                name: carries.get(outer, set()) for name, outer in zip(own, given, strict=False)
            }
            _collect(body, shapes, carries | inside, limits)
        if node.op_type in _KEEPS_VALUES:
            for output in node.output:
                carries[output] = set().union(*(carries.get(name, set()) for name in node.input))
        elif node.op_type in _SELECTS:
            entries = _entries(node, shapes)
            for name in carries.get(node.input[1], ()):
                limits[name] = min(entries, limits.get(name, entries))


def _entries(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:  # noqa: ANN401  protobuf
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    shape = shapes.get(node.input[0], ())
    return max(1, shape[axis]) if -len(shape) <= axis < len(shape) else 1


def _shapes(graph: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401  protobuf
    values = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info)
    }
    return values | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
