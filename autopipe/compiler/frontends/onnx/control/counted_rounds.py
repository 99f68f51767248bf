"""Counts the rounds of loops that count themselves, as exporters of TensorFlow write them.

Such a Loop has no number of rounds. It carries a counter, adds 1 to it, and goes on as long as that
is less than a length. Where the counter starts at a known number and the length is known, too, what
the condition is made of is computed beforehand, round by round:

    Loop("", true, 0, h)  with the body  i' = i + 1, h' = f(h), go = i' < 80

becomes a Loop of 80 rounds. The lengths of what it stacks are known then as well.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.control.scopes import (
    Names,
    find_body,
    list_captured,
)
from autopipe.compiler.frontends.onnx.control.trips import Known, find_node_trips, read_scalars
from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.shapes import read_value_shape
from autopipe.compiler.frontends.onnx.reading.tensors import Array, describe_node
from autopipe.errors import ModelError

_Row = tuple[int, tuple[int, ...]]
"""ONNX's number of a dtype, and a shape."""
MOST: Final = 2**14
"""Rounds that are counted; each takes a fraction of a millisecond."""
_NODES: Final = 32
"""Nodes that a condition may be made of."""
_SCALAR: Final = frozenset({
    "Add", "And", "Cast", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Max", "Min", "Mul", "Not", "Or", "Squeeze", "Sub",
})  # fmt: skip
"""Operators that make single numbers of single numbers."""
_STATES: Final = 2
"""Inputs of a Loop, and of its body, before the states."""


def settle_counted_loops(graph: GraphProto, opset: int) -> bool:
    """Give loops that count themselves their number of rounds; tell whether anything was new.

    `graph` says what is known of shapes, and its bodies have no tensors of their own. Raises
    ModelError for a loop that never ends.
    """
    known, names = read_scalars(graph), Names(graph)
    changed = False
    for node in [node for node in graph.node if node.op_type == "Loop"]:
        found = find_node_trips(node, known)
        count = found.exactly
        if count is None and found.starts and (found.most is not None or not found.bounded):
            count = _count_rounds(node, known, opset, found.most)
            if count is not None:
                _bind_rounds(graph, node, count, names)
                changed = True
        if count is not None:
            changed |= _note_stack_lengths(graph, node, count, opset)
    return changed


def _count_rounds(node: NodeProto, known: Known, opset: int, most: int | None) -> int | None:
    """Return how often a loop runs that starts, at most `most` times.

    None where that is not known, or very often. Raises ModelError for a loop that never ends.
    """
    found = _find_condition(node, known)
    if found is None:
        return None
    nodes, states = found
    inner = find_body(node)
    names = [value.name for value in inner.input]
    changing = {names[at]: known[node.input[at]] for at in states}
    given = {names[0]: np.asarray(0, np.int64), names[1]: np.ones((), bool), **changing}
    wanted = [inner.output[0].name, *(inner.output[at - 1].name for at in states)]
    fixed = {name: known[name] for each in nodes for name in each.input if name in known}
    run = _make_evaluator(nodes, given, wanted, fixed, opset)
    turns = most is None and not any(names[0] in made.input for made in nodes)
    endless = f"{describe_node(node)} never ends: nothing that its condition reads ever changes"
    try:
        for count in range(1, min(MOST if most is None else most, MOST) + 1):
            go, *after = map(np.asarray, run.run(None, given))
            if not np.all(go):
                return count
            if turns and _has_equal_arrays(after, [given[name] for name in changing]):
                raise ModelError(endless)
            given = {**given, names[0]: np.asarray(count, np.int64)}
            given.update(zip(changing, after, strict=True))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):  # as onnx likes
        return None
    return most if most is not None and most <= MOST else None


def _has_equal_arrays(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


def _find_condition(node: NodeProto, known: Known) -> tuple[list[NodeProto], list[int]] | None:
    """Return the nodes that a condition is made of, and the places of the states it reads.

    None where it is made of anything that is not known, or of more than single numbers.
    """
    inner = find_body(node)
    makers = {name: at for at, made in enumerate(inner.node) for name in made.output}
    places = {value.name: at for at, value in enumerate(inner.input)}
    states: list[int] = []
    chosen: set[int] = set()
    read = [inner.output[0].name]
    while read:
        name = read.pop()
        at = places.get(name, 0)
        if name in makers:
            made = inner.node[makers[name]]
            if made.op_type not in _SCALAR or len(chosen) > _NODES:
                return None
            read.extend(made.input if makers[name] not in chosen else ())
            chosen.add(makers[name])
        elif at >= _STATES and node.input[at] in known:
            read.extend(() if at in states else (inner.output[at - 1].name,))
            states.append(at)
        elif name not in known and (at >= _STATES or name not in places):
            return None
    return [inner.node[at] for at in sorted(chosen)], list(dict.fromkeys(states))


def _make_evaluator(
    nodes: Sequence[NodeProto],
    given: Mapping[str, Array],
    wanted: Sequence[str],
    fixed: Mapping[str, Array],
    opset: int,
) -> ReferenceEvaluator:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in wanted]
    stored = [numpy_helper.from_array(value, name) for name, value in fixed.items()]
    graph = helper.make_graph(nodes, "condition", inputs, outputs, stored)
    return ReferenceEvaluator(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    )


def _bind_rounds(graph: GraphProto, node: NodeProto, count: int, names: Names) -> None:
    """Give a loop a number of rounds, in the place of its condition."""
    limit = names.fresh("rounds")
    graph.initializer.append(numpy_helper.from_array(np.asarray(count, np.int64), limit))
    node.input[0], node.input[1] = limit, ""
    inner = find_body(node)
    always = names.fresh("always")
    inner.node.append(helper.make_node("Identity", [inner.input[1].name], [always]))
    inner.output[0].name = always


def _note_stack_lengths(graph: GraphProto, node: NodeProto, count: int, opset: int) -> bool:
    """Say how long what a loop stacks is; tell whether that was new."""
    states = len(node.input) - _STATES
    if len(node.output) <= states:
        return False
    noted = {value.name: value for value in (*graph.output, *graph.value_info)}
    rows = _list_row_types(graph, node, opset)
    changed = False
    for row, name in zip(rows, node.output[states:], strict=False):
        if row is None or not name:
            continue
        whole = (row[0], (count, *row[1]))
        told = noted.get(name)
        if told is None or _read_row_type(told) != whole:
            told = graph.value_info.add(name=name) if told is None else told
            told.type.CopyFrom(helper.make_tensor_type_proto(*whole))
            changed = True
    return changed


def _list_row_types(graph: GraphProto, node: NodeProto, opset: int) -> list[_Row | None]:
    """Return dtype and shape of what each round adds to a stack; None where they are not known.

    ONNX's inference forgets the shapes of states, since they may change. Here they are those that
    the loop starts with, and have to come out again.
    """
    inner = type(graph)()
    inner.CopyFrom(find_body(node))
    del inner.value_info[:]
    types = {value.name: value.type for value in (*graph.input, *graph.value_info)}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for value, state in zip(inner.input[_STATES:], node.input[_STATES:], strict=True):
        if state in stored:
            kind = helper.make_tensor_type_proto(stored[state].data_type, stored[state].dims)
            value.type.CopyFrom(kind)
        elif state in types:
            value.type.CopyFrom(types[state])
    given = {value.name: value.type for value in inner.input}
    for value in inner.output:  # what is passed on is an input, too
        value.type.CopyFrom(given.get(value.name, onnx.TypeProto()))
    for name in list_captured(inner):
        if name in stored:
            inner.initializer.append(stored[name])
        elif name in types:
            inner.input.append(onnx.ValueInfoProto(name=name, type=types[name]))
    version = helper.make_opsetid("", opset)
    try:
        model = helper.make_model(inner, opset_imports=[version])
        found = infer_types(model).graph
    except onnx.shape_inference.InferenceError:
        return []
    known = {
        value.name: _read_row_type(value)
        for value in (*found.value_info, *found.output, *found.input)
    }
    states = len(node.input) - _STATES
    before = [known[value.name] for value in found.input[_STATES : states + _STATES]]
    _, *results = [known.get(value.name) for value in found.output]
    return results[states:] if results[:states] == before else []


def _read_row_type(value: ValueInfoProto) -> _Row | None:
    dtype, shape = value.type.tensor_type.elem_type, read_value_shape(value)
    return (dtype, shape) if dtype and shape is not None else None
