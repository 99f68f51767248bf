"""Resolve If nodes with a constant condition, before shape inference.

The branch that is never taken may have inconsistent shapes. Conditions that depend on shapes are
resolved later, in `flatten`.
"""

from onnx import GraphProto, NodeProto, helper
from onnx.numpy_helper import from_array

from autopipe.compiler.frontends.onnx.control.scopes import Names, has_control
from autopipe.compiler.frontends.onnx.control.unroll import take_branch
from autopipe.compiler.frontends.onnx.reading.tensors import replace_nodes
from autopipe.compiler.frontends.onnx.rewriting.constants import (
    Values,
    evaluate_short,
    read_short_lists,
)


def replace_known_branches(graph: GraphProto, opset: int) -> None:
    """Replace each If with a constant condition by the nodes of the taken branch.

    Nodes that compute the condition become constants, too. Invalid nodes are left to the checker.
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
        helper.make_node("Constant", [], [name], value=from_array(array, name))
        for name, array in values.items()
    ]
