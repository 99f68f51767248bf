"""Trace nodes of a cleaned-up graph back to the nodes of the user's ONNX file.

Each node of the file gets a number, which its copies carry in `doc_string`. New nodes of the
clean-up are matched by the names of their outputs, merged nodes by the readers of their outputs:

    Conv -> a -> BatchNormalization -> b     becomes     Conv -> b, with the numbers of both
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto

from autopipe.artifacts.model_nodes import ModelNode
from autopipe.compiler.frontends.onnx.reading.tensors import (
    list_bodies,
    list_graphs,
    name_nodes,
)

_MARK: Final = "autopipe nodes "

Nodes = frozenset[int]


def number_nodes(model: ModelProto) -> tuple[ModelNode, ...]:
    """Number the nodes of a model, mark each with its number, and return their names.

    An unnamed node gets the name of its operator and its index among these; a duplicate name gets
    the number of its occurrence.
    """
    model_nodes: list[ModelNode] = []
    names: Counter[str] = Counter()
    positions: Counter[str] = Counter()
    for graph in list_graphs(model.graph):
        for node in graph.node:
            node.doc_string = _MARK + str(len(model_nodes))
            name = node.name or f"{node.op_type}_{positions[node.op_type]}"
            positions[node.op_type] += 1
            names[name] += 1
            if names[name] > 1:
                name = f"{name} ({names[name]})"
                node.name = node.name and name
            outputs = tuple(filter(None, node.output))
            model_nodes.append(ModelNode(name=name, op=node.op_type, outputs=outputs))
    return tuple(model_nodes)


def mark_body(nodes: Iterable[NodeProto], origin: NodeProto) -> None:
    """Copy the mark of a node to the nodes of its function body."""
    for node in nodes:
        node.doc_string = origin.doc_string


def read_origins(
    before: GraphProto, after: GraphProto, weights: Collection[str]
) -> Mapping[str, Nodes]:
    """Map each node of a cleaned-up graph, by its now unique name, to numbers of original nodes.

    `before` is the numbered graph. Nodes that read only `weights` are not traced.
    """
    name_nodes(after)
    origins = _Origins(before, after, frozenset(weights))
    origins_by_name: dict[str, Nodes] = {}
    names: Counter[str] = Counter()
    for graph in list_graphs(after):
        for node in graph.node:
            names[node.name] += 1
            if names[node.name] > 1:  # bodies of unnamed nodes use the same names
                node.name = f"{node.name} ({names[node.name]})"
            origins_by_name[node.name] = origins.of(node)
    return origins_by_name


class _Origins:
    """The original numbers of the nodes of a cleaned-up graph."""

    def __init__(self, before: GraphProto, after: GraphProto, weights: frozenset[str]) -> None:
        self._numbers: dict[int, Nodes] = {}
        """By the identity of the node, which `_nodes` keeps alive."""
        self._nodes = [node for graph in list_graphs(after) for node in graph.node]
        self._makers = {name: node for node in before.node for name in node.output if name}
        self._number_graph(after, Nodes())
        self._follow_merged(before, after, weights)

    def of(self, node: NodeProto) -> Nodes:
        """Return the numbers of a node."""
        return self._numbers.get(_make_key(node), Nodes())

    def _number_graph(self, graph: GraphProto, owner: Nodes) -> None:
        """Number the nodes of a graph; a new node gets the numbers of its readers."""
        readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in graph.node:
            for name in _list_inputs(node):
                readers[name].append(node)
        for node in reversed(graph.node):
            node_numbers = _read_marks(node) or self._find_earlier_marks(node)
            if not node_numbers:
                node_numbers = Nodes().union(
                    *(self.of(one) for name in node.output for one in readers[name])
                )
            self._numbers[_make_key(node)] = node_numbers or owner
            for body in list_bodies(node):
                self._number_graph(body, node_numbers or owner)

    def _find_earlier_marks(self, node: NodeProto) -> Nodes:
        """Return the numbers of the original producers of a node's outputs."""
        makers = (self._makers.get(name) for name in node.output if name)
        return Nodes().union(*(_read_marks(maker) for maker in makers if maker is not None))

    def _follow_merged(
        self, before: GraphProto, after: GraphProto, weights: frozenset[str]
    ) -> None:
        """Add the numbers of vanished nodes to the nodes that replace them."""
        present = Nodes().union(*self._numbers.values())
        producers = {name: node for node in after.node for name in node.output if name}
        by_number: dict[int, list[NodeProto]] = defaultdict(list)
        for node in after.node:
            for number in self.of(node):
                by_number[number].append(node)
        readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in before.node:
            for name in _list_inputs(node):
                readers[name].append(node)
        computed_names = {value.name for value in before.input} - weights
        for node in before.node:
            if not computed_names.intersection(_list_inputs(node)):
                continue
            computed_names.update(node.output)
            missing_numbers = _read_marks(node) - present
            if not missing_numbers:
                continue
            successors = [producers[name] for name in node.output if name in producers]
            successors = successors or _find_next_nodes(node, readers, by_number)
            for heir in successors:
                self._numbers[_make_key(heir)] |= missing_numbers


def _find_next_nodes(
    node: NodeProto,
    readers: Mapping[str, list[NodeProto]],
    by_number: Mapping[int, list[NodeProto]],
) -> list[NodeProto]:
    """Return the nodes that carry the numbers of a node's nearest readers."""
    level, visited_keys = [node], set[int]()
    while level:
        level = [
            reader for one in level for name in one.output if name
            for reader in readers.get(name, ()) if _make_key(reader) not in visited_keys
        ]  # fmt: skip
        visited_keys.update(map(_make_key, level))
        successors = [
            heir
            for one in level
            for number in _read_marks(one)
            for heir in by_number.get(number, ())
        ]
        if successors:
            return successors
    return []


def _list_inputs(node: NodeProto) -> set[str]:
    """List the names that a node and its inner graphs read."""
    inner = (
        name
        for body in list_bodies(node)
        for g in list_graphs(body)
        for n in g.node
        for name in n.input
    )
    return {name for name in (*node.input, *inner) if name}


def _read_marks(node: NodeProto) -> Nodes:
    text = node.doc_string
    if not text.startswith(_MARK):
        return Nodes()
    return Nodes(map(int, text.removeprefix(_MARK).split(",")))


def _make_key(node: NodeProto) -> int:
    return id(node)
