"""What a graph says of sizes that it leaves open: what they are multiples of, and how large."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import find_operator, has_trait

_IMAGE: Final = 4
"""Sizes of an image: batch, channels, height and width."""
_LARGEST: Final = 256
"""A multiple above it is none that a user would think of."""


@dataclass(frozen=True, slots=True)
class SizeHints:
    """Hints, which may be wrong: they are proposed, never relied on."""

    multiples: tuple[int, int]
    """By how much height and width of an image get smaller at most on their way; 1 where they do
    not."""
    stride: int
    """The same of a signal: one step of what comes out stands for so many samples."""
    bound: int | None
    """Rows of the smallest table of which a computed part is taken, such as positions."""


def find_size_hints(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> SizeHints:
    """Return what a checked graph says; `shapes` are the static shapes of its values."""
    images = {value.name for value in graph.input if _is_image(value)}
    signals = {value.name for value in graph.input if _is_open(value)} - images
    bound = min(_list_table_limits(graph, shapes), default=None)
    sides = (_find_multiple(graph, images, 0), _find_multiple(graph, images, 1))
    return SizeHints(sides, _find_multiple(graph, signals, 0), bound)


def _find_multiple(graph: GraphProto, inputs: set[str], side: int) -> int:
    """Follow sizes through the graph: a stride makes them smaller, a resize larger again."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    smaller = {name: Fraction(1) for name in inputs}
    for node in graph.node:
        given = [smaller[name] for name in node.input if name in smaller]
        factor = _find_size_factor(node, stored, side)
        if not given or factor is None or has_trait(node, Trait.ENDS_IMAGE):
            continue
        for name in node.output:
            smaller[name] = max(given) * factor
    whole = [int(by) for by in smaller.values() if by.denominator == 1 and by <= _LARGEST]
    return max(whole, default=1)


def _is_image(value: ValueInfoProto) -> bool:
    """Tell whether an input has four sizes or more, and open ones behind its first two."""
    dims = value.type.tensor_type.shape.dim
    return len(dims) >= _IMAGE and any(not dim.HasField("dim_value") for dim in dims[2:])


def _find_size_factor(
    node: NodeProto, stored: Mapping[str, TensorProto], side: int
) -> Fraction | None:
    """Return by how much a node makes a side of an image smaller; None where it is not known."""
    operator = find_operator(node)
    if operator is None or operator.size_factor is None:
        return Fraction(1)
    return operator.size_factor(node, stored, side)


def _list_table_limits(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[int]:
    """Yield the rows of constant tables of which sizes say the part that is taken."""
    constant = {tensor.name for tensor in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    constant |= shapes.keys() - _list_computed(graph)
    counted = _list_counted(graph, constant)
    for node in graph.node:
        table = node.input[0] if node.input else ""
        rows = shapes.get(table, ())
        if table not in constant or len(rows) < 2:  # noqa: PLR2004 - a table
            continue
        operator = find_operator(node)
        if operator is not None and operator.table_limit is not None:
            limit = operator.table_limit(node, counted, rows)
            if limit is not None:
                yield limit


def _list_computed(graph: GraphProto) -> set[str]:
    """Return names of inputs of the graph and of what its nodes compute."""
    made = {name for node in graph.node for name in node.output}
    return made | {value.name for value in graph.input if _is_open(value)}


def _is_open(value: ValueInfoProto) -> bool:
    return any(not dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)


def _list_counted(graph: GraphProto, constant: set[str]) -> set[str]:
    """Return values that are made of sizes and constants alone, and of some size."""
    counted = set[str]()
    for node in graph.node:
        names = [name for name in node.input if name]
        pure = all(name in counted or name in constant for name in names)
        if has_trait(node, Trait.READS_SIZES) or (pure and any(n in counted for n in names)):
            counted.update(node.output)
    return counted
