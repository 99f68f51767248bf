"""The role of each weight of an ONNX graph, and the moments of intermediate values."""

from collections.abc import Mapping

from onnx import GraphProto, NodeProto

from autopipe.compiler.frontends.moments import NORMAL, Kind, Moments, Role, round_moments
from autopipe.compiler.frontends.onnx.operator import Operator, Trait, count_matrix_products
from autopipe.compiler.frontends.onnx.operators import find_operator, has_trait
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs

Shapes = Mapping[str, tuple[int, ...]]

_SHIFT_SQUARE = 0.01


def find_roles(
    graph: GraphProto, weights: frozenset[str], shapes: Shapes, scalars: Mapping[str, float]
) -> dict[str, Role]:
    """Return the role of each weight that has one; `scalars` are the constants of the graph."""
    roles: dict[str, Role] = {}
    origin = {name: name for name in weights}
    moments = {name: Moments(value, value * value) for name, value in scalars.items()}
    for node in (node for inner in list_graphs(graph) for node in inner.node):
        operator, inputs = find_operator(node), list(node.input)
        if inputs and inputs[0] in origin and has_trait(node, Trait.KEEPS_WEIGHTS):
            origin[node.output[0]] = origin[inputs[0]]
            continue
        slots = {
            slot: kind
            for slot, kind in (operator.weights if operator else {}).items()
            if slot < len(inputs) and inputs[slot] in origin
        }
        data = [moments.get(name, NORMAL) for name in inputs if name not in origin]
        for slot, kind in slots.items():
            role = Role(kind, data[0] if data else NORMAL, _count_fan_in(node, slot, shapes))
            roles.setdefault(origin[inputs[slot]], role)
        moments.update(dict.fromkeys(node.output, _find_result_moments(node, data, slots, shapes)))
    return roles


def _find_result_moments(
    node: NodeProto, data: list[Moments], slots: Mapping[int, Kind], shapes: Shapes
) -> Moments:
    """Return the moments of a node's output from those of its inputs without weights."""
    shift = _SHIFT_SQUARE if "shift" in slots.values() else 0.0
    if not data or "kernel" in slots.values() or has_trait(node, Trait.NORMALIZES):
        mean, square = NORMAL
    else:
        mean, square = _apply_rule(find_operator(node), data, shapes.get(node.input[0]) or (1,))
    return round_moments(mean, square + shift)


def _apply_rule(operator: Operator | None, data: list[Moments], shape: tuple[int, ...]) -> Moments:
    """Return the moments of a result; those of the first input if there is no rule."""
    if operator is not None and operator.row_moments is not None:
        return operator.row_moments(data, shape[-1])
    if operator is not None and operator.moments is not None:
        return operator.moments(data)
    return data[0]


def _count_fan_in(node: NodeProto, slot: int, shapes: Shapes) -> int:
    """Return the number of products per output element."""
    operator = find_operator(node)
    count = count_matrix_products if operator is None else operator.count_products
    return max(1, count(node, slot, shapes.get(node.input[slot], (1,))))
