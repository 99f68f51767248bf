"""Fold nodes of constant inputs, and shapes of known sizes, into constants.

Those of branches and bodies become constants of the outermost graph, which they may read:

    If(c) then { s = Shape(x); p = Slice(s, ...); y = Pad(x, p) }

becomes If(c) then { y = Pad(x, [1, 576]) }.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.bounds import BOUNDS
from autopipe.compiler.frontends.onnx.control.scopes import redirect_inputs
from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import has_trait
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    describe_node,
    list_bodies,
    read_constant,
    replace_nodes,
)
from autopipe.compiler.frontends.onnx.reading.value_types import UNKNOWN, ValueType, read_types
from autopipe.compiler.frontends.onnx.rewriting.constants import evaluate_node, evaluate_shape
from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import GraphView
from autopipe.errors import ModelError

_MOVES: Final = frozenset({
    "Concat", "Flatten", "Gather", "Reshape", "Slice", "Squeeze", "Unsqueeze",
})  # fmt: skip
"""Operators that only move elements of their first inputs."""
_MOVED_INPUTS: Final = {"Concat": None}
"""Number of data inputs by operator, None for all; 1 for others."""
_SIZES: Final = frozenset({"Shape", "Size"})
_OPEN: Final = -(2**62) - 11
"""Placeholder of an unknown size in partially known shapes."""


def store_constants(graph: GraphProto) -> None:
    """Convert Constant nodes of the outermost graph to initializers, except graph outputs."""
    results = {value.name for value in graph.output}
    remaining_nodes = []
    for node in graph.node:
        tensor = None if results.intersection(node.output) else read_constant(node)
        if tensor is None:
            remaining_nodes.append(node)
        else:
            graph.initializer.add().CopyFrom(tensor)
    if len(remaining_nodes) < len(graph.node):
        replace_nodes(graph, remaining_nodes)


def fold_constants(view: GraphView) -> bool:
    """Replace nodes of constant inputs by their values; returns whether there were any.

    Raises ModelError if the values exceed the memory bound.
    """
    folding = _ConstantFolding(view)
    remaining_nodes = [node for node in view.graph.node if not folding.take(node)]
    if len(remaining_nodes) == len(view.graph.node) and not folding.has_changed_bodies:
        return False
    view.replace_nodes(remaining_nodes)
    folding.store()
    return True


class _ConstantFolding:
    def __init__(self, view: GraphView) -> None:
        self._view = view
        self._remaining_uses: Counter[str] = Counter(self._view.readers)
        self._values: dict[str, Array] = {}
        """Values of folded nodes by name."""
        self._partial: dict[str, Array] = {}
        """Partially known shapes, and slices of them."""
        stored_bytes = sum(len(each.raw_data) for each in view.graph.initializer)
        self._most = BOUNDS.folded + BOUNDS.folded_share * stored_bytes
        self.has_changed_bodies = False

    def take(self, node: NodeProto) -> bool:
        """Evaluate a node if possible; returns whether its values replace it."""
        if any(list_bodies(node)):
            self._fold_bodies(node, self._view.types)
        if not has_trait(node, Trait.FOLDABLE):
            return False
        values = (
            self._fold_shape(node)
            or self._fold_constant_node(node)
            or self._fold_partial_shape(node)
        )
        if values is None:
            return False
        self._values.update(values)
        is_replaced = self._view.results.isdisjoint(node.output)
        if is_replaced:
            self._forget_inputs(node)
        self._bound_size(node)
        return is_replaced

    def store(self) -> None:
        """Store the values that remaining nodes read."""
        for name, values in self._values.items():
            if self._view.readers[name] and name not in self._view.results:
                self._view.store_as(name, np.asarray(values, order="C"))

    def _fold_bodies(self, node: NodeProto, outer_types: Mapping[str, ValueType]) -> None:
        """Fold the nodes of inner graphs into constants of the outermost graph.

        In a loop no shape is known: those of its states may change from round to round.
        """
        for body in list_bodies(node):
            is_fixed = node.op_type == "If" and bool(outer_types)
            types = {**outer_types, **read_types(body)} if is_fixed else {}
            results, names = {value.name for value in body.output}, dict[str, str]()
            remaining_nodes = []
            for inner in body.node:
                redirect_inputs(inner, names)
                self._fold_bodies(inner, types)
                values = self._fold_inner_node(inner, types)
                if values is None or not results.isdisjoint(inner.output):
                    remaining_nodes.append(inner)
                    continue
                new_names = {name: self._view.make_name(name) for name in values}
                self._values.update((new_names[name], each) for name, each in values.items())
                self._bound_size(inner)
                names |= new_names
            if len(remaining_nodes) < len(body.node):
                replace_nodes(body, remaining_nodes)
                self.has_changed_bodies = True

    def _fold_inner_node(
        self, node: NodeProto, types: Mapping[str, ValueType]
    ) -> dict[str, Array] | None:
        if (tensor := read_constant(node)) is not None:
            return {tensor.name: to_array(tensor)}
        if not has_trait(node, Trait.FOLDABLE):
            return None
        shape = types.get(node.input[0], UNKNOWN).shape if node.input else None
        if node.op_type in _SIZES and shape is not None:
            return {node.output[0]: evaluate_shape(node, shape)}
        return self._fold_constant_node(node)

    def _forget_inputs(self, node: NodeProto) -> None:
        """Drop the values that no later or remaining node reads."""
        for name in node.input:
            self._remaining_uses[name] -= 1
            if not self._remaining_uses[name]:
                self._values.pop(name, None)

    def _bound_size(self, node: NodeProto) -> None:
        size = sum(array.nbytes for array in self._values.values())
        if size > self._most:
            raise ModelError(
                f"{describe_node(node)}: what is computed of constants alone comes to "
                f"{size >> 20} MiB, more than {self._most >> 20} MiB"
            )

    def _find_constant(self, name: str) -> Array | None:
        if name in self._values:
            return self._values[name]
        return self._view.find_constant(name)

    def _fold_shape(self, node: NodeProto) -> dict[str, Array] | None:
        """Evaluate Shape or Size of a value of known type."""
        if node.op_type not in _SIZES:
            return None
        sizes = self._view.type_of(node.input[0]).sizes
        if sizes is None:
            return None
        numbers = [size if isinstance(size, int) else _OPEN for size in sizes]
        if node.op_type == "Size" and _OPEN in numbers:
            return None
        return self._store_sizes(node, evaluate_shape(node, numbers))

    def _fold_constant_node(self, node: NodeProto) -> dict[str, Array] | None:
        if not node.input or not all(self._is_known(name) for name in node.input if name):
            return None  # before any tensor is read
        inputs = {name: self._find_constant(name) for name in node.input if name}
        return self._evaluate_node(node, inputs)

    def _fold_partial_shape(self, node: NodeProto) -> dict[str, Array] | None:
        """Evaluate a slice of a partially known shape, if the slice is known."""
        if node.op_type not in _MOVES or self._partial.keys().isdisjoint(node.input):
            return None
        inputs: dict[str, Array | None] = {}
        moved_inputs = _MOVED_INPUTS.get(node.op_type, 1)
        for index, name in enumerate(node.input):
            if name in self._partial and (moved_inputs is None or index < moved_inputs):
                inputs[name] = self._partial[name]
            elif name:
                inputs[name] = self._find_constant(name)
        values = self._evaluate_node(node, inputs)
        return None if values is None else self._store_sizes(node, values[node.output[0]])

    def _is_known(self, name: str) -> bool:
        return name in self._values or name in self._view.stored

    def _evaluate_node(
        self, node: NodeProto, inputs: dict[str, Array | None]
    ) -> dict[str, Array] | None:
        """Evaluate a node; None if the result's type differs from the inferred one."""
        constants = {name: values for name, values in inputs.items() if values is not None}
        values = (
            evaluate_node(node, constants, self._view.opset)
            if len(constants) == len(inputs)
            else None
        )
        if values is None or not all(
            self._has_inferred_type(name, each) for name, each in values.items()
        ):
            return None
        return values

    def _has_inferred_type(self, name: str, values: Array) -> bool:
        kind = self._view.type_of(name)
        is_of_type = kind.element in {0, np_dtype_to_tensor_dtype(values.dtype)}
        return is_of_type and kind.shape in {None, values.shape}

    def _store_sizes(self, node: NodeProto, sizes: Array) -> dict[str, Array] | None:
        """Return sizes as a node's value if all are known; else note them as partial."""
        if _OPEN not in sizes:
            return {node.output[0]: sizes}
        self._partial[node.output[0]] = sizes
        return None
