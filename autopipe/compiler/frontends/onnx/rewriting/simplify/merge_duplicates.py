"""Merges tensors that hold the same, and nodes that compute the same of the same inputs."""

import hashlib
from collections import Counter
from collections.abc import Hashable

from onnx import GraphProto, NodeProto, TensorProto
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx.control.scopes import redirect_inputs
from autopipe.compiler.frontends.onnx.reading.tensors import list_bodies
from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import GraphView


def merge_duplicates(view: GraphView) -> bool:
    """Have readers of equal values read the first; tell whether a node went away.

    Inputs are compared by place, one that is left out included: `Clip(x, c, "")` is not
    `Clip(x, "", c)`. A result of the graph keeps its node.
    """
    first: dict[Hashable, list[str]] = {}
    names = _find_equal_tensors(view.graph)
    kept = []
    for node in view.graph.node:
        redirect_inputs(node, names)
        if any(list_bodies(node)):
            kept.append(node)
            continue
        made = first.setdefault(_make_key(node), list(node.output))
        if made != list(node.output) and view.results.isdisjoint(node.output):
            names.update(zip(node.output, made, strict=True))
        else:
            kept.append(node)
    if len(kept) < len(view.graph.node):
        view.replace_nodes(kept)
        return True
    if names:
        view.index_nodes()
    return False


def _make_key(node: NodeProto) -> Hashable:
    """Return what two nodes share that compute the same: all but names."""
    attributes = sorted(each.SerializeToString(deterministic=True) for each in node.attribute)
    given = [bool(name) for name in node.output]
    return node.domain, node.op_type, tuple(node.input), tuple(attributes), tuple(given)


def _find_equal_tensors(graph: GraphProto) -> dict[str, str]:
    """Return the names of tensors that an earlier one equals, with its name; they stay stored."""
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
