"""Conditions that the constants of a model decide: the branch that is never taken may fit nothing.

So this comes before shapes are inferred. What depends on shapes is decided later, in `flatten`.
"""

from onnx import GraphProto, NodeProto, helper
from onnx.numpy_helper import from_array

from autopipe.compiler.frontends.onnx.control.scopes import Names, has_control
from autopipe.compiler.frontends.onnx.control.unroll import take_branch
from autopipe.compiler.frontends.onnx.rewriting.constants import (
    Values,
    evaluate_short,
    read_short_lists,
)


def replace_known_branches(graph: GraphProto, opset: int) -> None:
    """Put the branch that is taken into the place of each If whose condition is known.

    What decides on it becomes constants, too. What is wrong with a node is left to the checker.
    """
    if not has_control(graph):
        return
    names = Names(graph)
    known = read_short_lists(graph)
    waiting, nodes, changed = list(reversed(graph.node)), [], False
    while waiting:
        node = waiting.pop()
        chosen = _read_condition(node, known)
        if chosen is None:
            values = evaluate_short(node, known, opset)
            known.update(values)
            nodes += _make_constants(values) or [node]
        else:
            waiting += reversed(take_branch(node, names, chosen=chosen))
            changed = True
    if not changed:
        return
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _read_condition(node: NodeProto, known: Values) -> bool | None:
    """Return the condition of an If, None where it is not known and for any other node."""
    if node.op_type != "If" or node.domain or len(node.input) != 1:
        return None
    inside = {attribute.name for attribute in node.attribute if attribute.HasField("g")}
    if not inside >= {"then_branch", "else_branch"}:
        return None
    value = known.get(node.input[0])
    return None if value is None or value.size != 1 else bool(value.reshape(-1)[0])


def _make_constants(values: Values) -> list[NodeProto]:
    return [
        helper.make_node("Constant", [], [name], value=from_array(array, name))
        for name, array in values.items()
    ]
