"""Find the inputs of an ONNX graph that are indices into a table."""

from collections.abc import Iterable, Mapping
from typing import Final

from onnx import GraphProto, NodeProto

from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import has_trait
from autopipe.compiler.frontends.onnx.reading.tensors import read_attributes
from autopipe.compiler.frontends.onnx.reading.value_types import UNKNOWN, ValueType, read_types

_KEEPS_VALUES: Final = Trait.KEEPS_ELEMENTS | Trait.MOVES_ELEMENTS | Trait.KEEPS_VALUES


def find_index_limits(graph: GraphProto, inputs: Iterable[str]) -> dict[str, int]:
    """Find the inputs that are indices, with the number of indexed entries, by name.

    `inputs` are those of the model, without weights. An input that indexes a table of unknown size
    is limited to its first entry.
    """
    limits: dict[str, int] = {}
    _collect_limits(graph, {}, {name: {name} for name in inputs}, limits)
    return limits


def _collect_limits(
    graph: GraphProto,
    types: Mapping[str, ValueType],
    sources: dict[str, set[str]],
    limits: dict[str, int],
) -> None:
    """Add the limits in a graph; `sources` maps values to the model inputs they contain."""
    types = {**types, **read_types(graph)}
    for node in graph.node:
        for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
            parameters = [value.name for value in body.input]
            operands = node.input[len(node.input) - len(parameters) :]  # a Loop's also
            inner = {  # include count and condition
                name: sources.get(operand, set())
                for name, operand in zip(parameters, operands, strict=False)
            }
            _collect_limits(body, types, sources | inner, limits)
        if has_trait(node, _KEEPS_VALUES):
            for output in node.output:
                sources[output] = set().union(*(sources.get(name, set()) for name in node.input))
        elif has_trait(node, Trait.LOOKS_UP):
            entries = _count_entries(node, types)
            for name in sources.get(node.input[1], ()):
                limits[name] = min(entries, limits.get(name, entries))


def _count_entries(node: NodeProto, types: Mapping[str, ValueType]) -> int:
    axis, sizes = read_attributes(node).get("axis", 0), types.get(node.input[0], UNKNOWN).sizes
    size = sizes[axis] if sizes and -len(sizes) <= axis < len(sizes) else None
    return max(1, size) if isinstance(size, int) else 1
