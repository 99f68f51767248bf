"""Remove nodes that return one of their inputs bit for bit, for all values.

Mul(x, [[1.0]]) of an x of two axes or more   x
Sub(x, 0.0)                                   x; not Add(x, 0.0), which makes 0.0 of -0.0
Pad(x, [0, 0, 0, 0])                          x
Dropout(x), outside of training               x, and its mask is true everywhere
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from onnx import NodeProto, helper

from autopipe.compiler.frontends.onnx.control.scopes import redirect_inputs
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    list_bodies,
)
from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import (
    STANDARD,
    GraphView,
    find_attribute,
    name_operand,
)

_TRAINING: Final = 2
"""Index of Dropout's input `training_mode`."""


def remove_no_ops(view: GraphView) -> bool:
    """Remove no-ops from a graph and its inner graphs; returns whether there were any."""
    return _remove_from(view, view, {**_OF_TYPES, **_OF_SHAPES})


def _remove_from(outer: GraphView, view: GraphView, rules: "_Rules") -> bool:
    """Remove the no-ops of the graph of `view`; `outer` has the initializers."""
    sources: dict[str, str] = {}
    remaining_nodes, changed = [], False
    for node in view.graph.node:
        redirect_inputs(node, sources)
        for body in list_bodies(node):  # the shapes of a state may differ from round to round
            changed |= _remove_from(outer, GraphView(body, view.opset), _OF_TYPES)
        source = _find_source(outer, view, node, rules)
        if source is None:
            remaining_nodes.append(node)
        elif node.output[0] not in view.results:
            sources[node.output[0]] = source
        elif source in view.producers and source not in view.results:
            result = node.output[0]
            _rename_value(remaining_nodes, source, result)
            sources = {name: result if old == source else old for name, old in sources.items()}
            sources[source] = result
            view.producers[result] = view.producers.pop(source)
        else:
            changed |= node.op_type != "Identity"
            remaining_nodes.append(
                helper.make_node("Identity", [source], node.output[:1], name=node.name)
            )
    if changed or len(remaining_nodes) < len(view.graph.node):
        view.replace_nodes(remaining_nodes)
        return True
    return False


def _rename_value(nodes: list[NodeProto], old: str, new: str) -> None:
    """Rename a value in its producer and its readers."""
    for node in nodes:
        redirect_inputs(node, {old: new})
        node.output[:] = [new if name == old else name for name in node.output]


def _find_source(outer: GraphView, view: GraphView, node: NodeProto, rules: "_Rules") -> str | None:
    """Return the name of the input that a no-op returns, None for other nodes."""
    rule = rules.get(node.op_type)
    if rule is None or node.domain not in STANDARD:
        return None
    if any(view.readers[name] for name in node.output[1:] if name):
        return None
    index = rule(_Case(outer, view, node))
    return None if index is None else node.input[index]


class _Case:
    """A node with the known types and constants of its inputs and its result."""

    def __init__(self, outer: GraphView, view: GraphView, node: NodeProto) -> None:
        self._outer, self._view, self.node = outer, view, node

    def find_constant(self, index: int) -> Array | None:
        return self._outer.find_constant(name_operand(self.node, index))

    def element(self, index: int) -> int:
        name = name_operand(self.node, index)
        return self._view.type_of(name).element or self._outer.type_of(name).element

    def rank(self, index: int) -> int | None:
        return self._view.type_of(name_operand(self.node, index)).rank

    def keeps_shape(self, index: int) -> bool:
        """Whether the result has the shape of an input, by numbers and names of dimensions."""
        sizes = self._view.type_of(name_operand(self.node, index)).sizes
        dimension_names = self._view.dimensions
        return (
            sizes is not None
            and sizes == self._view.type_of(self.node.output[0]).sizes
            and all(isinstance(size, int) or size in dimension_names for size in sizes)
        )

    def is_empty(self, index: int, axis: int) -> bool:
        """Whether an input is known to have size 0 along an axis."""
        sizes = self._view.type_of(name_operand(self.node, index)).sizes or ()
        return -len(sizes) <= axis < len(sizes) and sizes[axis] == 0

    def is_filled(self, index: int, number: float, *, negative_zero: bool = False) -> bool:
        """Whether an input is a constant filled with `number` that leaves the other's shape."""
        values = self.find_constant(index)
        if values is None or not values.size or not (values == number).all():
            return False
        if number == 0 and values.dtype.kind == "f" and (np.signbit(values) != negative_zero).any():
            return False
        rank = self.rank(1 - index)
        is_single = values.size == 1 and values.ndim <= (rank or 0)
        return is_single or self.keeps_shape(1 - index)


_Rules = Mapping[str, Callable[[_Case], int | None]]
"""By operator: the index of the input that equals the result, None if unproven."""


def _pass_first(_: _Case) -> int | None:
    return 0


def _match_single_input(case: _Case) -> int | None:
    return 0 if len(case.node.input) == 1 else None


def _match_same_shape(case: _Case) -> int | None:
    return 0 if case.keeps_shape(0) else None


def _match_dropout(case: _Case) -> int | None:
    drops = case.find_constant(_TRAINING) if name_operand(case.node, _TRAINING) else np.zeros(())
    ratio = case.find_constant(1) if name_operand(case.node, 1) else np.ones(())
    is_never = (drops is not None and not drops.any()) or (ratio is not None and not ratio.any())
    return 0 if is_never else None


def _match_cast(case: _Case) -> int | None:
    to = find_attribute(case.node, "to")
    return 0 if to is not None and to.i == case.element(0) else None


def _match_cast_like(case: _Case) -> int | None:
    return 0 if case.element(0) and case.element(0) == case.element(1) else None


def _match_transpose(case: _Case) -> int | None:
    order = find_attribute(case.node, "perm")
    if order is not None:
        return 0 if list(order.ints) == sorted(order.ints) else None
    return 0 if case.rank(0) in {0, 1} else None


def _match_pad(case: _Case) -> int | None:
    attribute = find_attribute(case.node, "pads")
    pads = case.find_constant(1) if attribute is None else np.array(attribute.ints)
    return None if pads is None or pads.any() else 0


def _match_slice(case: _Case) -> int | None:
    """Match a slice of full length: with positive steps it is the whole axis."""
    steps = case.find_constant(4) if name_operand(case.node, 4) else np.ones(1)
    is_forward = steps is not None and (steps > 0).all()
    return 0 if is_forward and case.keeps_shape(0) else None


def _match_concat(case: _Case) -> int | None:
    """Return the index of the only nonempty input, None if there are several."""
    axis = find_attribute(case.node, "axis")
    nonempty_indices = [
        index
        for index in range(len(case.node.input))
        if axis is None or not case.is_empty(index, axis.i)
    ]
    return nonempty_indices[0] if len(nonempty_indices) == 1 else None


def _match_mul(case: _Case) -> int | None:
    return next((1 - index for index in (1, 0) if case.is_filled(index, 1)), None)


def _match_add(case: _Case) -> int | None:
    return next(
        (1 - index for index in (1, 0) if case.is_filled(index, 0, negative_zero=True)), None
    )


def _match_sub(case: _Case) -> int | None:
    return 0 if case.is_filled(1, 0) else None


def _match_div(case: _Case) -> int | None:
    return 0 if case.is_filled(1, 1) else None


_OF_TYPES: Final[_Rules] = {
    "Identity": _pass_first, "Dropout": _match_dropout, "Cast": _match_cast,
    "CastLike": _match_cast_like,
    "Transpose": _match_transpose, "Pad": _match_pad, "Max": _match_single_input,
    "Mean": _match_single_input, "Min": _match_single_input, "Sum": _match_single_input,
}  # fmt: skip
_OF_SHAPES: Final[_Rules] = {
    "Add": _match_add, "Concat": _match_concat, "Div": _match_div, "Expand": _match_same_shape,
    "Flatten": _match_same_shape, "Mul": _match_mul, "Reshape": _match_same_shape,
    "Slice": _match_slice,
    "Split": _match_same_shape, "Squeeze": _match_same_shape, "Sub": _match_sub,
    "Tile": _match_same_shape, "Unsqueeze": _match_same_shape,
}  # fmt: skip
