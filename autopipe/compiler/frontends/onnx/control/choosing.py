"""Conditions that the constants of a model decide: the branch that is never taken may fit nothing.

So this comes before shapes are inferred. What depends on shapes is decided later, in `flatten`.
"""

from typing import Final

import numpy as np
from onnx import helper
from onnx.numpy_helper import from_array, to_array

from autopipe.compiler.frontends.onnx.control.scopes import Names, has_control
from autopipe.compiler.frontends.onnx.control.trips import Known
from autopipe.compiler.frontends.onnx.control.unroll import branch
from autopipe.compiler.frontends.onnx.tensors import Array, Proto

_FOLDED: Final = frozenset({
    "And", "Concat", "Constant", "Equal", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Not", "Or", "Size", "Slice", "Split", "Squeeze", "Xor",
})  # fmt: skip
"""Operators that a condition is made of; none of them makes much of little."""
_MOST: Final = 64
"""Elements of what they are applied to."""


def choose(graph: Proto, opset: int) -> None:
    """Put the branch that is taken into the place of each If whose condition is known.

    What decides on it becomes constants, too. What is wrong with a node is left to the checker.
    """
    if not has_control(graph):
        return
    names = Names(graph)
    known = {each.name: to_array(each) for each in graph.initializer if _is_small(each.dims)}
    waiting, nodes, changed = list(reversed(graph.node)), [], False
    while waiting:
        node = waiting.pop()
        chosen = _chosen(node, known)
        if chosen is None:
            values = _values(node, known, opset)
            known.update(values)
            nodes += _stored(values) or [node]
        else:
            waiting += reversed(branch(node, names, chosen=chosen))
            changed = True
    if not changed:
        return
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _chosen(node: Proto, known: Known) -> bool | None:
    """Return the condition of an If, None where it is not known and for any other node."""
    if node.op_type != "If" or node.domain or len(node.input) != 1:
        return None
    inside = {attribute.name for attribute in node.attribute if attribute.HasField("g")}
    if not inside >= {"then_branch", "else_branch"}:
        return None
    value = known.get(node.input[0])
    return None if value is None or value.size != 1 else bool(value.reshape(-1)[0])


def _is_small(dims: tuple[int, ...]) -> bool:
    return int(np.prod(dims)) <= _MOST


def _stored(values: Known) -> list[Proto]:
    return [
        helper.make_node("Constant", [], [name], value=from_array(array, name))
        for name, array in values.items()
    ]


def _values(node: Proto, known: Known, opset: int) -> dict[str, Array]:
    """Return what a node computes of what is known, by name; nothing of others and of mistakes."""
    from onnx.reference import ReferenceEvaluator

    if node.domain or node.op_type not in _FOLDED or not all(name in known for name in node.input):
        return {}
    named = [[helper.make_empty_tensor_value_info(name) for name in names]
             for names in (node.input, node.output)]  # fmt: skip
    made = helper.make_model(
        helper.make_graph([node], "one", *named), opset_imports=[helper.make_opsetid("", opset)]
    )
    try:
        found = ReferenceEvaluator(made).run(None, {name: known[name] for name in node.input})
    except Exception:  # noqa: BLE001 - of an evaluator; the model's checker says what is wrong
        return {}
    arrays = dict(zip(node.output, map(np.asarray, found), strict=True))
    return arrays if all(_is_small(array.shape) for array in arrays.values()) else {}
