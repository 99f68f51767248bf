"""Move constant nodes of loop bodies and branches to the outermost graph.

A node that reads only initializers is constant, and so is a Shape of a tensor with known shape.
Clean-up folds constants in the outermost graph only, hence such nodes move there:

    If(c) then { s = Shape(x); p = Slice(s, ...); y = Pad(x, p) }

becomes p = Slice(Constant [1, 576], ...); If(c) then { y = Pad(x, p) }.

Nothing is computed here, unlike in `constants`, which evaluates short integer tensors in graphs
without bodies: the moved nodes may compute large floats, which are folded later.
"""

from collections.abc import Mapping

from onnx import GraphProto, NodeProto, numpy_helper

from autopipe.compiler.frontends.onnx.control.scopes import (
    KINDS,
    Names,
    has_control,
    redirect_inputs,
)
from autopipe.compiler.frontends.onnx.reading.tensors import Array, list_bodies
from autopipe.compiler.frontends.onnx.reading.value_types import read_value_types
from autopipe.compiler.frontends.onnx.rewriting.constants import evaluate_shape

_Shapes = Mapping[str, tuple[int, ...]]


def fold_inner_constants(graph: GraphProto) -> bool:
    """Move constant nodes of inner graphs to the outermost one; returns whether there were any.

    `graph` has inferred shapes, and its bodies have no initializers.
    """
    if not has_control(graph):
        return False
    folding = _Folding(graph)
    for node in graph.node:
        for inner in list_bodies(node):
            folding.within(inner, _read_shapes(graph) if node.op_type == "If" else {})
    remaining_nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*folding.moved, *remaining_nodes])
    return folding.changed


class _Folding:
    def __init__(self, graph: GraphProto) -> None:
        self._graph, self._names = graph, Names(graph)
        self._constants = {tensor.name for tensor in graph.initializer}
        self.moved: list[NodeProto] = []
        """Nodes for the outermost graph, in order."""
        self.changed = False

    def within(self, graph: GraphProto, around: _Shapes) -> None:
        """Move constant nodes out of a graph and its inner graphs.

        `around` are the shapes of captured values, empty for the body of a loop: the shapes of its
        states may change from round to round.
        """
        shapes = {**around, **_read_shapes(graph)} if around else {}
        results = {value.name for value in graph.output}
        remaining_nodes: list[NodeProto] = []
        names: dict[str, str] = {}
        for node in graph.node:
            redirect_inputs(node, names)
            for inner in list_bodies(node):
                self.within(inner, shapes if node.op_type == "If" else {})
            if results.isdisjoint(node.output) and self._can_move(node, shapes):
                names.update(zip(node.output, self._take_out(node, shapes), strict=True))
            else:
                remaining_nodes.append(node)
        del graph.node[:]
        graph.node.extend(remaining_nodes)

    def _can_move(self, node: NodeProto, shapes: _Shapes) -> bool:
        if node.op_type in KINDS or node.op_type == "Dropout":  # which may be random
            return False
        return _compute_shape(node, shapes) is not None or self._constants.issuperset(
            filter(None, node.input)
        )

    def _take_out(self, node: NodeProto, shapes: _Shapes) -> list[str]:
        """Move a node to the outermost graph; returns the new names of its outputs."""
        self.changed = True
        new = [self._names.fresh(name) if name else "" for name in node.output]
        self._constants.update(new)
        shape_value = _compute_shape(node, shapes)
        if shape_value is not None:
            self._graph.initializer.append(numpy_helper.from_array(shape_value, new[0]))
            return new
        copy = type(node)()
        copy.CopyFrom(node)
        copy.output[:] = new
        self.moved.append(copy)
        return new


def _compute_shape(node: NodeProto, shapes: _Shapes) -> Array | None:
    """Evaluate Shape or Size of a tensor of known shape; None for other nodes."""
    if node.op_type not in {"Shape", "Size"} or node.input[0] not in shapes:
        return None
    return evaluate_shape(node, shapes[node.input[0]])


def _read_shapes(graph: GraphProto) -> _Shapes:
    """Return the known shapes of a graph by name."""
    types = read_value_types((*graph.input, *graph.value_info))
    return {name: kind.shape for name, kind in types.items() if kind.shape is not None}
