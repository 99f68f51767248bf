"""Flatten control flow: unroll short loops of constant trip count, resolve constant conditions."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.control import counted_rounds, scans
from autopipe.compiler.frontends.onnx.control.lift_tensors import lift_tensors
from autopipe.compiler.frontends.onnx.control.scopes import (
    Names,
    find_body,
    has_control,
    instantiate_body,
)
from autopipe.compiler.frontends.onnx.control.trips import (
    Known,
    find_node_trips,
    read_scalars,
    read_truth,
)
from autopipe.compiler.frontends.onnx.reading import check_operators, memory
from autopipe.compiler.frontends.onnx.reading.inference import require_types
from autopipe.compiler.frontends.onnx.reading.tensors import (
    describe_node,
    list_bodies,
    list_graphs,
    replace_nodes,
)
from autopipe.compiler.frontends.onnx.rewriting.constants import (
    Values,
    evaluate_short,
    read_short_lists,
)
from autopipe.errors import ModelError

MOST: Final = 256
"""Maximum number of nodes of one unrolled loop: each costs the compiler milliseconds."""

TOTAL: Final = 2048
"""Maximum number of nodes of all unrolled loops of a model."""

_AXES_ARE_INPUTS: Final = 13
"""The first opset in which the axes of Unsqueeze are an input."""


def flatten_control_flow(model: ModelProto, simplify: Callable[[ModelProto], None]) -> ModelProto:
    """Resolve constant conditions and unroll short loops.

    `simplify` folds constants, so that inner loops may become constant once an outer one is
    unrolled; it puts tensors into bodies, which are lifted again. Raises ModelError for a loop that
    never ends, for an inconsistent one, and if rounds take too much memory.
    """
    if not has_control(model.graph):
        return model
    opset = check_operators.read_opset(model.opset_import)
    scans.check_scans(model.graph, opset)
    unrolling = _Unrolling(opset)
    while True:
        model = require_types(model)
        lift_tensors(model.graph)
        has_counted = counted_rounds.settle_counted_loops(model.graph, opset)
        if not unrolling.step(model.graph) and not has_counted:
            return model
        graph = require_types(model).graph
        initializer_names = {tensor.name for tensor in graph.initializer}
        memory.check_memory(
            graph, {value.name for value in graph.input} - initializer_names, initializer_names
        )
        simplify(model)


def replace_known_branches(graph: GraphProto, opset: int) -> None:
    """Replace each If with a constant condition by the taken branch, before shape inference.

    The branch that is never taken may have inconsistent shapes; conditions that depend on shapes
    are resolved later. Nodes that compute the condition become constants, too. Invalid nodes are
    left to the checker.
    """
    if not has_control(graph):
        return
    names = Names(graph)
    constants = read_short_lists(graph)
    pending, nodes, changed = list(reversed(graph.node)), [], False
    while pending:
        node = pending.pop()
        condition = _read_condition(node, constants)
        if condition is None:
            values = evaluate_short(node, constants, opset)
            constants.update(values)
            nodes += _make_constants(values) or [node]
        else:
            pending += reversed(take_branch(node, names, condition=condition))
            changed = True
    if not changed:
        return
    replace_nodes(graph, nodes)


def _read_condition(node: NodeProto, constants: Values) -> bool | None:
    """Return the constant condition of an If; None if it is computed, and for other nodes."""
    if node.op_type != "If" or node.domain or len(node.input) != 1:
        return None
    branch_names = {attribute.name for attribute in node.attribute if attribute.HasField("g")}
    if not branch_names >= {"then_branch", "else_branch"}:
        return None
    value = constants.get(node.input[0])
    return None if value is None or value.size != 1 else bool(value.reshape(-1)[0])


def _make_constants(values: Values) -> list[NodeProto]:
    return [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
        for name, array in values.items()
    ]


class _Unrolling:
    """Unrolls loops within a node budget, which all calls of `step` share."""

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._left = TOTAL

    def step(self, graph: GraphProto) -> bool:
        """Unroll the outermost loops and conditions of a graph; returns whether there were any.

        The graph has inferred shapes. A Scan becomes a Loop. In a remaining branch or loop body,
        constant conditions are resolved. Raises ModelError for a loop that never ends.
        """
        if not has_control(graph):
            return False
        names = Names(graph)
        scans.to_loops(graph, {}, names)
        return self._flatten_graph(graph, read_scalars(graph), names, is_outermost=True)

    def _flatten_graph(
        self, graph: GraphProto, constants: Known, names: Names, *, is_outermost: bool
    ) -> bool:
        nodes: list[NodeProto] = []
        changed = False
        for node in graph.node:
            plain = self._unroll_node(node, constants, names) if is_outermost else None
            if node.op_type == "If" and (truth := read_truth(constants, node.input[0])) is not None:
                plain = take_branch(node, names, condition=truth)
            changed |= plain is not None
            for inner in list_bodies(node) if plain is None else ():
                changed |= self._flatten_graph(inner, constants, names, is_outermost=False)
            nodes.extend([node] if plain is None else plain)
        replace_nodes(graph, nodes)
        return changed

    def _unroll_node(
        self, node: NodeProto, constants: Known, names: Names
    ) -> list[NodeProto] | None:
        """Return the rounds of a Loop; None if it stays, and for other nodes."""
        count = find_node_trips(node, constants).exactly if node.op_type == "Loop" else None
        if count is None:
            return None
        cost = count * max(1, sum(len(inner.node) for inner in list_graphs(find_body(node))))
        if cost > min(MOST, self._left):
            return None
        self._left -= cost
        return _unroll_loop(node, count, names, self._opset)


def take_branch(node: NodeProto, names: Names, *, condition: bool) -> list[NodeProto]:
    """Return the nodes of an If's branch for a constant condition."""
    graph = find_body(node, "then_branch" if condition else "else_branch")
    nodes, results = instantiate_body(graph, [], names)
    return [*nodes, *_pass_values_on(results, node.output)]


def _unroll_loop(node: NodeProto, count: int, names: Names, opset: int) -> list[NodeProto]:
    graph, states = find_body(node), list(node.input)[2:]
    stacks: list[list[str]] = [[] for _ in graph.output[1 + len(states) :]]
    nodes: list[NodeProto] = []
    goes = _make_constant(np.ones((), bool), names, nodes)
    for number in range(count):
        inputs = [_make_constant(np.int64(number), names, nodes), goes, *states]
        if len(graph.input[0].type.tensor_type.shape.dim) == 1:
            inputs[0] = _make_constant(np.array([number]), names, nodes)
        body_nodes, (_, *results) = instantiate_body(graph, inputs, names)
        nodes += body_nodes
        states, slices = results[: len(states)], results[len(states) :]
        for row, name in zip(stacks, slices, strict=True):
            row.append(name)
    output_names = list(node.output) + [""] * (len(graph.output) - 1 - len(node.output))
    nodes += _pass_values_on(states, output_names[: len(states)])
    for name, rows in zip(output_names[len(states) :], stacks, strict=True):
        if name and not rows:
            raise ModelError(
                f"{describe_node(node)} does not run, so that its output {name!r} is empty"
            )
        if name:
            wide = [_add_row(row, names, nodes, opset) for row in rows]
            nodes.append(helper.make_node("Concat", wide, [name], axis=0))
    return nodes


def _pass_values_on(results: Sequence[str], output_names: Sequence[str]) -> list[NodeProto]:
    pairs = zip(results, output_names, strict=False)
    return [helper.make_node("Identity", [made], [name]) for made, name in pairs if name]


def _add_row(name: str, names: Names, nodes: list[NodeProto], opset: int) -> str:
    """Add an Unsqueeze of axis 0 to a slice and return its name."""
    row = names.fresh(name)
    if opset < _AXES_ARE_INPUTS:
        nodes.append(helper.make_node("Unsqueeze", [name], [row], axes=[0]))
    else:
        axes = _make_constant(np.array([0], np.int64), names, nodes)
        nodes.append(helper.make_node("Unsqueeze", [name, axes], [row]))
    return row


def _make_constant(value: np.generic | np.ndarray, names: Names, nodes: list[NodeProto]) -> str:
    name = names.fresh("constant")
    tensor = numpy_helper.from_array(np.asarray(value), name)
    nodes.append(helper.make_node("Constant", [], [name], value=tensor))
    return name
