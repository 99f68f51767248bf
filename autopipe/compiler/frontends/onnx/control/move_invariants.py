"""Moves out of bodies what is the same in each round, or whichever branch is taken.

What a body computes of tensors that are stored in the model is a constant, and so is the shape of
what has a known one. Clean-up folds constants in the outermost graph alone. So such nodes move
there:

    If(c) then { s = Shape(x); p = Slice(s, ...); y = Pad(x, p) }

becomes p = Slice(Constant [1, 576], ...); If(c) then { y = Pad(x, p) }.

Nothing is computed here, unlike in `constants`, which computes short whole numbers in graphs that
have no bodies: what moves may be large floats, which are folded where they are then.
"""

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, NodeProto, numpy_helper

from autopipe.compiler.frontends.onnx.control.scopes import (
    KINDS,
    Names,
    has_control,
    redirect_inputs,
)
from autopipe.compiler.frontends.onnx.reading.shapes import read_value_shape
from autopipe.compiler.frontends.onnx.reading.tensors import Array, list_bodies

_Shapes = Mapping[str, tuple[int, ...]]


def fold_inner_constants(graph: GraphProto) -> bool:
    """Move constant work of inner graphs to the outermost one; tell whether there was any.

    `graph` says what is known of shapes, and its bodies have no tensors of their own.
    """
    if not has_control(graph):
        return False
    folding = _Folding(graph)
    for node in graph.node:
        for inner in list_bodies(node):
            folding.within(inner, _read_shapes(graph) if node.op_type == "If" else {})
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend([*folding.moved, *kept])
    return folding.changed


class _Folding:
    def __init__(self, graph: GraphProto) -> None:
        self._graph, self._names = graph, Names(graph)
        self._constants = {tensor.name for tensor in graph.initializer}
        self.moved: list[NodeProto] = []
        """Nodes for the outermost graph, in order."""
        self.changed = False

    def within(self, graph: GraphProto, around: _Shapes) -> None:
        """Move what is constant out of a graph, and of those inside it.

        `around` are shapes outside of it. There are none for the body of a loop: what its states
        are like may change from round to round.
        """
        shapes = {**around, **_read_shapes(graph)} if around else {}
        results = {value.name for value in graph.output}
        kept: list[NodeProto] = []
        names: dict[str, str] = {}
        for node in graph.node:
            redirect_inputs(node, names)
            for inner in list_bodies(node):
                self.within(inner, shapes if node.op_type == "If" else {})
            if results.isdisjoint(node.output) and self._can_move(node, shapes):
                names.update(zip(node.output, self._taken(node, shapes), strict=True))
            else:
                kept.append(node)
        del graph.node[:]
        graph.node.extend(kept)

    def _can_move(self, node: NodeProto, shapes: _Shapes) -> bool:
        if node.op_type in KINDS or node.op_type == "Dropout":  # which may draw
            return False
        return _compute_shape(node, shapes) is not None or self._constants.issuperset(
            filter(None, node.input)
        )

    def _taken(self, node: NodeProto, shapes: _Shapes) -> list[str]:
        """Take a node of a body to the outermost graph; return the new names of its outputs."""
        self.changed = True
        new = [self._names.fresh(name) if name else "" for name in node.output]
        self._constants.update(new)
        known = _compute_shape(node, shapes)
        if known is not None:
            self._graph.initializer.append(numpy_helper.from_array(known, new[0]))
            return new
        copy = type(node)()
        copy.CopyFrom(node)
        copy.output[:] = new
        self.moved.append(copy)
        return new


def _compute_shape(node: NodeProto, shapes: _Shapes) -> Array | None:
    """Return what Shape or Size computes of a tensor of known shape; None for all else."""
    if node.op_type not in {"Shape", "Size"} or node.input[0] not in shapes or node.attribute:
        return None
    shape = shapes[node.input[0]]
    if node.op_type == "Shape":
        return np.array(shape, np.int64)
    return np.array(np.prod(shape, dtype=np.int64))


def _read_shapes(graph: GraphProto) -> _Shapes:
    """Return the shapes of a graph that are known, by name."""
    values = (*graph.input, *graph.value_info)
    return {value.name: shape for value in values if (shape := read_value_shape(value)) is not None}
