"""Finds how large integers may be that a model is given: those that select rows of a table, say."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.signature import Port
from autopipe.errors import AutopipeError
from autopipe.store import arrays
from autopipe.verification import reference
from autopipe.verification.inputs import ARBITRARY_INTEGERS, draw
from autopipe.verification.reference import MODEL, RUNTIMES

_BOUNDS: Final = tuple(ARBITRARY_INTEGERS >> halvings for halvings in range(8))
_INTEGERS: Final = frozenset({"int16", "int32", "int64", "uint16", "uint32", "uint64"})

_KEEPS_VALUES = {
    "Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_SELECTS = {"Gather", "GatherElements"}


def input_limits(model: Path, ports: Sequence[Port]) -> dict[str, int]:
    """Return, by input name, what its values have to stay below; not all inputs have a limit.

    `model` is the artifact of *import*. Where the graph does not say it, onnxruntime is asked:
    lengths, or positions that something is added to, are made smaller until it takes them.
    """
    limits = index_limits(model)
    free = [port for port in ports if port.dtype in _INTEGERS and port.name not in limits]
    if not free or not (model / MODEL).exists():
        return limits
    with TemporaryDirectory() as work:
        tried = {bound: _tried(Path(work), ports, limits, free, bound) for bound in _BOUNDS}
        files = [file for pair in tried.values() for file in pair]
        try:
            refused = reference.expect(RUNTIMES, model, files, files).refused
        except AutopipeError:  # it is not installed, or does not take the model
            return limits
    taken = [
        bound
        for bound, pair in tried.items()
        if not any(file.with_suffix(".expected") in refused for file in pair)
    ]
    if not taken or taken[0] == ARBITRARY_INTEGERS:
        return limits
    return limits | {port.name: taken[0] for port in free}


def _tried(
    folder: Path,
    ports: Sequence[Port],
    limits: Mapping[str, int],
    free: Sequence[Port],
    bound: int,
) -> tuple[Path, Path]:
    """Write inputs whose free integers stay below a bound: drawn ones, and the largest ones."""
    drawn = draw(ports, {**limits, **{port.name: bound for port in free}}, (bound,))
    largest = {port.name: np.full_like(drawn[port.name], bound - 1) for port in free}
    files = (folder / f"{bound}.safetensors", folder / f"{bound}-largest.safetensors")
    arrays.save(drawn, files[0])
    arrays.save(drawn | largest, files[1])
    return files


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
