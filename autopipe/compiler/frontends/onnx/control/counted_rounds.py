"""Compute the trip count of loops with a counter in their condition, as TensorFlow exports them.

Such a Loop has no trip count input. It carries a counter, adds 1 to it, and continues while that is
less than a length. If the initial counter and the length are constants, the condition is evaluated
at import, round by round:

    Loop("", true, 0, h)  with the body  i' = i + 1, h' = f(h), go = i' < 80

becomes a Loop of 80 rounds. The lengths of its stacked outputs are then known as well.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.control.scopes import Names, find_body, list_captured
from autopipe.compiler.frontends.onnx.control.trips import Known, find_node_trips, read_scalars
from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.tensors import Array, describe_node
from autopipe.compiler.frontends.onnx.reading.value_types import read_type
from autopipe.errors import ModelError

_Row = tuple[int, tuple[int, ...]]
"""An ONNX element type and a shape."""
MOST: Final = 2**14
"""Maximum number of evaluated rounds; each takes a fraction of a millisecond."""
_NODES: Final = 32
"""Maximum number of nodes of a condition."""
_SCALAR: Final = frozenset({
    "Add", "And", "Cast", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Max", "Min", "Mul", "Not", "Or", "Squeeze", "Sub",
})  # fmt: skip
"""Operators that map scalars to scalars."""
_STATES: Final = 2
"""Inputs of a Loop, and of its body, before the states."""


def settle_counted_loops(graph: GraphProto, opset: int) -> bool:
    """Set the trip count of loops by evaluating their condition; returns whether any changed.

    `graph` has inferred shapes, and its bodies have no initializers. Raises
    ModelError for a loop that never ends.
    """
    constants, names = read_scalars(graph), Names(graph)
    changed = False
    for node in [node for node in graph.node if node.op_type == "Loop"]:
        trips = find_node_trips(node, constants)
        count = trips.exactly
        if count is None and trips.starts and (trips.most is not None or not trips.bounded):
            count = _count_rounds(node, constants, opset, trips.most)
            if count is not None:
                _bind_rounds(graph, node, count, names)
                changed = True
        if count is not None:
            changed |= _note_stack_lengths(graph, node, count, opset)
    return changed


def _count_rounds(node: NodeProto, constants: Known, opset: int, most: int | None) -> int | None:
    """Count the rounds of a loop that starts, at most `most`.

    None if that is unknown or above `MOST`. Raises ModelError for a loop that never ends.
    """
    condition_parts = _find_condition(node, constants)
    if condition_parts is None:
        return None
    nodes, states = condition_parts
    inner = find_body(node)
    names = [value.name for value in inner.input]
    changing = {names[at]: constants[node.input[at]] for at in states}
    arguments = {names[0]: np.asarray(0, np.int64), names[1]: np.ones((), bool), **changing}
    output_names = [inner.output[0].name, *(inner.output[at - 1].name for at in states)]
    captured_constants = {
        name: constants[name] for each in nodes for name in each.input if name in constants
    }
    run = _make_evaluator(nodes, arguments, output_names, captured_constants, opset)
    may_be_endless = most is None and not any(names[0] in made.input for made in nodes)
    message = f"{describe_node(node)} never ends: nothing that its condition reads ever changes"
    try:
        for count in range(1, min(MOST if most is None else most, MOST) + 1):
            go, *after = map(np.asarray, run.run(None, arguments))
            if not np.all(go):
                return count
            if may_be_endless and _has_equal_arrays(after, [arguments[name] for name in changing]):
                raise ModelError(message)
            arguments = {**arguments, names[0]: np.asarray(count, np.int64)}
            arguments.update(zip(changing, after, strict=True))
    except (
        ArithmeticError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ):  # of onnx's reference operators
        return None
    return most if most is not None and most <= MOST else None


def _has_equal_arrays(first: Sequence[Array], second: Sequence[Array]) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(first, second, strict=True))


def _find_condition(node: NodeProto, constants: Known) -> tuple[list[NodeProto], list[int]] | None:
    """Return the nodes that compute a condition, and the indices of the states they read.

    None if they read anything unknown or compute more than scalars.
    """
    inner = find_body(node)
    makers = {name: at for at, made in enumerate(inner.node) for name in made.output}
    places = {value.name: at for at, value in enumerate(inner.input)}
    states: list[int] = []
    node_indices: set[int] = set()
    pending = [inner.output[0].name]
    while pending:
        name = pending.pop()
        at = places.get(name, 0)
        if name in makers:
            inner_node = inner.node[makers[name]]
            if inner_node.op_type not in _SCALAR or len(node_indices) > _NODES:
                return None
            pending.extend(inner_node.input if makers[name] not in node_indices else ())
            node_indices.add(makers[name])
        elif at >= _STATES and node.input[at] in constants:
            pending.extend(() if at in states else (inner.output[at - 1].name,))
            states.append(at)
        elif name not in constants and (at >= _STATES or name not in places):
            return None
    return [inner.node[at] for at in sorted(node_indices)], list(dict.fromkeys(states))


def _make_evaluator(
    nodes: Sequence[NodeProto],
    arguments: Mapping[str, Array],
    output_names: Sequence[str],
    captured_constants: Mapping[str, Array],
    opset: int,
) -> ReferenceEvaluator:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in arguments.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in output_names]
    initializers = [
        numpy_helper.from_array(value, name) for name, value in captured_constants.items()
    ]
    graph = helper.make_graph(nodes, "condition", inputs, outputs, initializers)
    return ReferenceEvaluator(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    )


def _bind_rounds(graph: GraphProto, node: NodeProto, count: int, names: Names) -> None:
    """Replace the condition of a loop by a constant trip count."""
    limit = names.fresh("rounds")
    graph.initializer.append(numpy_helper.from_array(np.asarray(count, np.int64), limit))
    node.input[0], node.input[1] = limit, ""
    inner = find_body(node)
    always = names.fresh("always")
    inner.node.append(helper.make_node("Identity", [inner.input[1].name], [always]))
    inner.output[0].name = always


def _note_stack_lengths(graph: GraphProto, node: NodeProto, count: int, opset: int) -> bool:
    """Note the lengths of a loop's stacked outputs in `value_info`; returns whether any changed."""
    states = len(node.input) - _STATES
    if len(node.output) <= states:
        return False
    infos = {value.name: value for value in (*graph.output, *graph.value_info)}
    rows = _list_row_types(graph, node, opset)
    changed = False
    for row, name in zip(rows, node.output[states:], strict=False):
        if row is None or not name:
            continue
        stack_type = (row[0], (count, *row[1]))
        value_info = infos.get(name)
        if value_info is None or _read_row_type(value_info) != stack_type:
            value_info = graph.value_info.add(name=name) if value_info is None else value_info
            value_info.type.CopyFrom(helper.make_tensor_type_proto(*stack_type))
            changed = True
    return changed


def _list_row_types(graph: GraphProto, node: NodeProto, opset: int) -> list[_Row | None]:
    """Return dtype and shape of the row that a round adds to each stack, None if unknown.

    ONNX's inference drops the shapes of states, since they may change. Here they are the initial
    shapes, and each round has to return the same.
    """
    inner = type(graph)()
    inner.CopyFrom(find_body(node))
    del inner.value_info[:]
    types = {value.name: value.type for value in (*graph.input, *graph.value_info)}
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for value, state in zip(inner.input[_STATES:], node.input[_STATES:], strict=True):
        if state in initializers:
            kind = helper.make_tensor_type_proto(
                initializers[state].data_type, initializers[state].dims
            )
            value.type.CopyFrom(kind)
        elif state in types:
            value.type.CopyFrom(types[state])
    input_types = {value.name: value.type for value in inner.input}
    for value in inner.output:  # an output may be an input
        value.type.CopyFrom(input_types.get(value.name, onnx.TypeProto()))
    for name in list_captured(inner):
        if name in initializers:
            inner.initializer.append(initializers[name])
        elif name in types:
            inner.input.append(onnx.ValueInfoProto(name=name, type=types[name]))
    version = helper.make_opsetid("", opset)
    try:
        model = helper.make_model(inner, opset_imports=[version])
        inferred_graph = infer_types(model).graph
    except onnx.shape_inference.InferenceError:
        return []
    row_types = {
        value.name: _read_row_type(value)
        for value in (*inferred_graph.value_info, *inferred_graph.output, *inferred_graph.input)
    }
    states = len(node.input) - _STATES
    before = [row_types[value.name] for value in inferred_graph.input[_STATES : states + _STATES]]
    _, *results = [row_types.get(value.name) for value in inferred_graph.output]
    return results[states:] if results[:states] == before else []


def _read_row_type(value: ValueInfoProto) -> _Row | None:
    kind = read_type(value.type)
    return (kind.element, kind.shape) if kind.element and kind.shape is not None else None
