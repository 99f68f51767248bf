"""Merge equal initializers and common subexpressions."""

import hashlib
from collections import Counter
from collections.abc import Hashable

from onnx import GraphProto, NodeProto, TensorProto
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx.control.scopes import redirect_inputs
from autopipe.compiler.frontends.onnx.reading.tensors import list_bodies
from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import GraphView


def merge_duplicates(view: GraphView) -> bool:
    """Redirect readers of equal values to the first; returns whether a node was removed.

    Inputs are compared by index, absent inputs included: `Clip(x, c, "")` is not `Clip(x, "", c)`.
    A graph output keeps its node.
    """
    first: dict[Hashable, list[str]] = {}
    names = _find_equal_tensors(view.graph)
    remaining_nodes = []
    for node in view.graph.node:
        redirect_inputs(node, names)
        if any(list_bodies(node)):
            remaining_nodes.append(node)
            continue
        outputs = first.setdefault(_make_key(node), list(node.output))
        if outputs != list(node.output) and view.results.isdisjoint(node.output):
            names.update(zip(node.output, outputs, strict=True))
        else:
            remaining_nodes.append(node)
    if len(remaining_nodes) < len(view.graph.node):
        view.replace_nodes(remaining_nodes)
        return True
    if names:
        view.index_nodes()
    return False


def _make_key(node: NodeProto) -> Hashable:
    """Return a key that is equal for nodes that compute the same: all but the names."""
    attributes = sorted(each.SerializeToString(deterministic=True) for each in node.attribute)
    has_outputs = [bool(name) for name in node.output]
    return node.domain, node.op_type, tuple(node.input), tuple(attributes), tuple(has_outputs)


def _find_equal_tensors(graph: GraphProto) -> dict[str, str]:
    """Map the names of duplicate initializers to the first equal one; none is removed."""
    kinds = Counter(map(_read_kind, graph.initializer))
    first: dict[Hashable, str] = {}
    names = {}
    for tensor in graph.initializer:
        if kinds[_read_kind(tensor)] > 1:
            content = hashlib.sha256(to_array(tensor).tobytes()).digest()
            original = first.setdefault((_read_kind(tensor), content), tensor.name)
            if original != tensor.name:
                names[tensor.name] = original
    return names


def _read_kind(tensor: TensorProto) -> tuple[int, tuple[int, ...]]:
    return tensor.data_type, tuple(tensor.dims)
