"""Nodes of the user's ONNX file, followed through the clean-up of the graph.

Each node of the file gets a number, which its copies carry in `doc_string`. Nodes that the clean-up
writes are found by the values that they make, and those that it merged by who reads their results:

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
    """Number the nodes of a model, mark each with its number, and return what they are called.

    A node without a name is called after its operator and its position among these; a name that
    occurs again is followed by the number of its occurrence.
    """
    found: list[ModelNode] = []
    names: Counter[str] = Counter()
    positions: Counter[str] = Counter()
    for graph in list_graphs(model.graph):
        for node in graph.node:
            node.doc_string = _MARK + str(len(found))
            name = node.name or f"{node.op_type}_{positions[node.op_type]}"
            positions[node.op_type] += 1
            names[name] += 1
            if names[name] > 1:
                name = f"{name} ({names[name]})"
                node.name = node.name and name
            outputs = tuple(filter(None, node.output))
            found.append(ModelNode(name=name, op=node.op_type, outputs=outputs))
    return tuple(found)


def mark_body(nodes: Iterable[NodeProto], origin: NodeProto) -> None:
    """Give the nodes of a function's body the mark of the node that they are written for."""
    for node in nodes:
        node.doc_string = origin.doc_string


def read_origins(
    before: GraphProto, after: GraphProto, weights: Collection[str]
) -> Mapping[str, Nodes]:
    """Return the numbers of nodes by the name of each node of a cleaned-up graph, now unique.

    `before` is the graph as it was numbered. What is computed of `weights` alone is not followed.
    """
    name_nodes(after)
    origins = _Origins(before, after, frozenset(weights))
    found: dict[str, Nodes] = {}
    names: Counter[str] = Counter()
    for graph in list_graphs(after):
        for node in graph.node:
            names[node.name] += 1
            if names[node.name] > 1:  # of nodes without names, whose bodies name values alike
                node.name = f"{node.name} ({names[node.name]})"
            found[node.name] = origins.of(node)
    return found


class _Origins:
    """The numbers of the nodes of a cleaned-up graph."""

    def __init__(self, before: GraphProto, after: GraphProto, weights: frozenset[str]) -> None:
        self._numbers: dict[int, Nodes] = {}
        """By the identity of the node, which `_kept` keeps alive."""
        self._kept = [node for graph in list_graphs(after) for node in graph.node]
        self._makers = {name: node for node in before.node for name in node.output if name}
        self._number_graph(after, Nodes())
        self._follow_merged(before, after, weights)

    def of(self, node: NodeProto) -> Nodes:
        """Return the numbers of a node."""
        return self._numbers.get(_make_key(node), Nodes())

    def _number_graph(self, graph: GraphProto, owner: Nodes) -> None:
        """Number the nodes of a graph; one that is new is numbered after its readers."""
        readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in graph.node:
            for name in _list_inputs(node):
                readers[name].append(node)
        for node in reversed(graph.node):
            own = _read_marks(node) or self._find_earlier_marks(node)
            if not own:
                own = Nodes().union(
                    *(self.of(one) for name in node.output for one in readers[name])
                )
            self._numbers[_make_key(node)] = own or owner
            for body in list_bodies(node):
                self._number_graph(body, own or owner)

    def _find_earlier_marks(self, node: NodeProto) -> Nodes:
        """Return the number of the node that made one of these values before."""
        makers = (self._makers.get(name) for name in node.output if name)
        return Nodes().union(*(_read_marks(maker) for maker in makers if maker is not None))

    def _follow_merged(
        self, before: GraphProto, after: GraphProto, weights: frozenset[str]
    ) -> None:
        """Add the nodes that are gone to those that took their place."""
        present = Nodes().union(*self._numbers.values())
        made = {name: node for node in after.node for name in node.output if name}
        by_number: dict[int, list[NodeProto]] = defaultdict(list)
        for node in after.node:
            for number in self.of(node):
                by_number[number].append(node)
        readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in before.node:
            for name in _list_inputs(node):
                readers[name].append(node)
        computed = {value.name for value in before.input} - weights
        for node in before.node:
            if not computed.intersection(_list_inputs(node)):
                continue
            computed.update(node.output)
            gone = _read_marks(node) - present
            if not gone:
                continue
            heirs = [made[name] for name in node.output if name in made]
            heirs = heirs or _find_next_nodes(node, readers, by_number)
            for heir in heirs:
                self._numbers[_make_key(heir)] |= gone


def _find_next_nodes(
    node: NodeProto,
    readers: Mapping[str, list[NodeProto]],
    by_number: Mapping[int, list[NodeProto]],
) -> list[NodeProto]:
    """Return the nodes that the nearest readers of a node became."""
    level, seen = [node], set[int]()
    while level:
        level = [
            reader for one in level for name in one.output if name
            for reader in readers.get(name, ()) if _make_key(reader) not in seen
        ]  # fmt: skip
        seen.update(map(_make_key, level))
        heirs = [
            heir
            for one in level
            for number in _read_marks(one)
            for heir in by_number.get(number, ())
        ]
        if heirs:
            return heirs
    return []


def _list_inputs(node: NodeProto) -> set[str]:
    """Return what a node reads, and the graphs inside it."""
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
