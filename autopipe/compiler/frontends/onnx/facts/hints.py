"""Hints on dynamic dimensions from the graph: their multiples and bounds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import find_operator, has_trait

_IMAGE: Final = 4
"""Rank of an image: batch, channels, height and width."""
_LARGEST: Final = 256
"""Larger multiples are not proposed."""


@dataclass(frozen=True, slots=True)
class SizeHints:
    """Heuristic hints: they are proposed to the user, never relied on."""

    multiples: tuple[int, int]
    """Largest factors by which the graph reduces height and width of an image; 1 if it does not."""
    stride: int
    """The same for a signal: the samples per step of the output."""
    bound: int | None
    """Rows of the smallest table that is sliced by computed sizes, such as position embeddings."""


def find_size_hints(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> SizeHints:
    """Derive the hints of a checked graph; `shapes` are the static shapes of its values."""
    images = {value.name for value in graph.input if _is_image(value)}
    signals = {value.name for value in graph.input if _is_open(value)} - images
    bound = min(_list_table_limits(graph, shapes), default=None)
    sides = (_find_multiple(graph, images, 0), _find_multiple(graph, images, 1))
    return SizeHints(sides, _find_multiple(graph, signals, 0), bound)


def _find_multiple(graph: GraphProto, inputs: set[str], side: int) -> int:
    """Find the largest reduction of a side by following strides and resizes through the graph."""
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    factors = {name: Fraction(1) for name in inputs}
    for node in graph.node:
        input_factors = [factors[name] for name in node.input if name in factors]
        factor = _find_size_factor(node, initializers, side)
        if not input_factors or factor is None or has_trait(node, Trait.ENDS_IMAGE):
            continue
        for name in node.output:
            factors[name] = max(input_factors) * factor
    multiples = [int(by) for by in factors.values() if by.denominator == 1 and by <= _LARGEST]
    return max(multiples, default=1)


def _is_image(value: ValueInfoProto) -> bool:
    """Whether an input has rank 4 or more, and dynamic dimensions after the first two."""
    dims = value.type.tensor_type.shape.dim
    return len(dims) >= _IMAGE and any(not dim.HasField("dim_value") for dim in dims[2:])


def _find_size_factor(
    node: NodeProto, initializers: Mapping[str, TensorProto], side: int
) -> Fraction | None:
    """Return the factor by which a node reduces a side of an image; None if it is unknown."""
    operator = find_operator(node)
    if operator is None or operator.size_factor is None:
        return Fraction(1)
    return operator.size_factor(node, initializers, side)


def _list_table_limits(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[int]:
    """Yield the rows of constant tables that are sliced by computed sizes."""
    constant = {tensor.name for tensor in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    constant |= shapes.keys() - _list_computed(graph)
    size_names = _list_counted(graph, constant)
    for node in graph.node:
        table = node.input[0] if node.input else ""
        rows = shapes.get(table, ())
        if table not in constant or len(rows) < 2:  # noqa: PLR2004 - a table
            continue
        operator = find_operator(node)
        if operator is not None and operator.table_limit is not None:
            limit = operator.table_limit(node, size_names, rows)
            if limit is not None:
                yield limit


def _list_computed(graph: GraphProto) -> set[str]:
    """Return the names of inputs with dynamic shapes and of node outputs."""
    outputs = {name for node in graph.node for name in node.output}
    return outputs | {value.name for value in graph.input if _is_open(value)}


def _is_open(value: ValueInfoProto) -> bool:
    return any(not dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)


def _list_counted(graph: GraphProto, constant: set[str]) -> set[str]:
    """Return the names of values that are computed from at least one size and constants only."""
    size_names = set[str]()
    for node in graph.node:
        names = [name for name in node.input if name]
        pure = all(name in size_names or name in constant for name in names)
        if has_trait(node, Trait.READS_SIZES) or (pure and any(n in size_names for n in names)):
            size_names.update(node.output)
    return size_names
