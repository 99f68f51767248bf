"""Normalize forms that exporters write and onnxruntime accepts to standard ONNX.

Examples: negative sizes and placeholder names for unknown dimensions, unnamed graphs, unsorted
nodes, `ai.onnx` as a name of the standard domain, duplicate initializers. None changes the meaning
of a model, but libraries reject them or differ in their treatment.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, MutableSequence
from typing import Final

import numpy as np
import onnx
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from autopipe.compiler.frontends.onnx.control.scopes import Names
from autopipe.compiler.frontends.onnx.reading import sparse
from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.tensors import (
    count_uses,
    list_bodies,
    list_graphs,
    list_nodes,
    read_constant,
    replace_nodes,
)
from autopipe.compiler.frontends.onnx.reading.value_types import UNKNOWN, ValueType, read_types
from autopipe.compiler.frontends.onnx.rewriting import group_scales

NAMELESS: Final = re.compile(r"\?|-1|[Nn]one|")
"""Placeholder names of dimensions: two of the same name need not be equal."""

_UNNAMED: Final = "model"
_STANDARD: Final = "ai.onnx"
_OPTIONAL_SCALES: Final = 13
"""The first opset in which the scales of Resize are optional; earlier, sizes had empty ones."""
_SCALE_OF_GROUP: Final = 18
_SCALE_OF_CHANNEL: Final = 21
"""The opsets of GroupNormalization's two definitions; onnx's checker rejects the first one."""

_RANKED: Final = frozenset({"Range", "STFT"})
"""Operators for which onnxruntime accepts other ranks than ONNX."""
_UNSTACKED: Final = 2
"""The rank of signals without an axis for real and imaginary parts."""


def settle_form(model: ModelProto) -> None:
    """Normalize a model, in place, to the form that onnx's checker and TVM expect."""
    version = max((entry.version for entry in model.opset_import if not entry.domain), default=0)
    if _SCALE_OF_GROUP <= version < _SCALE_OF_CHANNEL:
        group_scales.rewrite_group_norms(model.graph)
    for graph in list_graphs(model.graph):
        graph.name = graph.name or _UNNAMED
        for value in (*graph.input, *graph.output, *graph.value_info):
            _open_dimension(value)
        sparse.write_out(graph)
        _drop_shadowed(graph.initializer)
        _settle_nodes(graph, version)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param") and NAMELESS.fullmatch(dim.dim_param):
                dim.ClearField("dim_param")
    for value in model.graph.output:
        if not value.HasField("type"):
            value.type.tensor_type.elem_type = 0  # `name_types` fills it in


def _settle_nodes(graph: GraphProto, opset: int) -> None:
    empty = {tensor.name for tensor in graph.initializer if list(tensor.dims) == [0]}
    for node in graph.node:
        if node.domain == _STANDARD:
            node.ClearField("domain")
        if node.op_type == "Constant":
            _store_list(node)
            empty.update(_list_empty(node))
    for node in graph.node:
        if node.op_type == "Resize" and opset >= _OPTIONAL_SCALES:
            _drop_empty_sizes(node, empty)
        elif node.op_type == "TopK":
            _sort_results(node)
    if not _is_sorted(graph):
        _sort_nodes(graph)


def settle_ranks(model: ModelProto) -> None:
    """Give inputs the ranks that ONNX states; onnxruntime accepts others.

    Inputs [1] of Range become scalars, and signals [batch, samples] of STFT end with an axis of 1.
    """
    if not any(map(_is_ranked, list_nodes(model.graph))):
        return
    try:
        inferred_model = infer_types(model)
    except onnx.shape_inference.InferenceError:
        return  # of another node; reported by the final inference
    types: dict[str, ValueType] = {}
    for graph in list_graphs(inferred_model.graph):
        types |= read_types(graph)
    names = Names(model.graph)
    for graph in list_graphs(model.graph):
        nodes: list[NodeProto] = []
        for node in graph.node:
            for index, name in enumerate(node.input if _is_ranked(node) else ()):
                if steps := _change_rank(node, index, types.get(name, UNKNOWN), names):
                    node.input[index] = steps[-1].output[0]
                    nodes += steps
            nodes.append(node)
        if len(nodes) > len(graph.node):
            replace_nodes(graph, nodes)


def name_types(graph: GraphProto, inferred_graph: GraphProto) -> None:
    """Set the inferred types of outputs in branches and bodies, and of untyped graph outputs."""
    (_, *bodies), (_, *inferred_bodies) = list_graphs(graph), list_graphs(inferred_graph)
    for body, inferred_body in zip(bodies, inferred_bodies, strict=True):
        for value, inferred_value in zip(body.output, inferred_body.output, strict=True):
            value.type.CopyFrom(inferred_value.type)
    for value, inferred_value in zip(graph.output, inferred_graph.output, strict=True):
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and not kind.elem_type:
            kind.elem_type = inferred_value.type.tensor_type.elem_type


def _is_ranked(node: NodeProto) -> bool:
    return node.op_type in _RANKED and not node.domain


def _change_rank(node: NodeProto, index: int, kind: ValueType, names: Names) -> list[NodeProto]:
    """Return the nodes that give an input its rank; none if it has it, or if that is not known."""
    name = node.input[index]
    if node.op_type == "Range" and kind.shape == (1,):
        return [helper.make_node("Squeeze", [name], [names.fresh(name)])]
    if node.op_type == "STFT" and index == 0 and kind.rank == _UNSTACKED:
        last = numpy_helper.from_array(np.array([-1]))
        axes = helper.make_node("Constant", [], [names.fresh("last")], value=last)
        return [axes, helper.make_node("Unsqueeze", [name, axes.output[0]], [names.fresh(name)])]
    return []


def _open_dimension(value: ValueInfoProto) -> None:
    """Clear negative sizes of dimensions."""
    if value.type.HasField("tensor_type"):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")


def _drop_shadowed(initializers: MutableSequence[TensorProto]) -> None:
    """Drop unnamed tensors, and all but the last of those with the same name."""
    names = {""}
    for index, tensor in reversed(list(enumerate(initializers))):
        if tensor.name in names:
            del initializers[index]
        names.add(tensor.name)


def _store_list(node: NodeProto) -> None:
    """Convert a Constant's `value_floats` to a tensor: TVM reads them as float64."""
    is_listed = any(field.name.startswith("value_float") for field in node.attribute)
    if is_listed and (tensor := read_constant(node)) is not None:
        tensor.ClearField("name")
        node.attribute[0].CopyFrom(helper.make_attribute("value", tensor))


def _list_empty(constant: NodeProto) -> Iterator[str]:
    """Yield the names of empty constants."""
    if any(field.name == "value" and list(field.t.dims) == [0] for field in constant.attribute):
        yield from constant.output


def _drop_empty_sizes(resize: NodeProto, empty: set[str]) -> None:
    """Drop empty scales or sizes of Resize, which are optional since opset 13."""
    for slot in (2, 3):
        if len(resize.input) > slot and resize.input[slot] in empty:
            resize.input[slot] = ""


def _sort_results(topk: NodeProto) -> None:
    """Set `sorted` of nodes that allow any order, so that all runtimes return the same."""
    for attribute in topk.attribute:
        if attribute.name == "sorted":
            attribute.i = 1


def _is_sorted(graph: GraphProto) -> bool:
    """Whether the nodes are in topological order."""
    later = Counter(name for node in graph.node for name in node.output if name)
    for node in graph.node:
        if any(later[name] for name in _list_read_values(node)):
            return False
        later.subtract(name for name in node.output if name)
    return True


def _sort_nodes(graph: GraphProto) -> None:
    """Sort nodes topologically; a cycle is left to the checker."""
    producer_index = {
        name: index for index, node in enumerate(graph.node) for name in node.output if name
    }
    producers_by_node = [
        {producer_index[name] for name in _list_read_values(node) if name in producer_index}
        for node in graph.node
    ]
    readers = defaultdict(list)
    for index, producers in enumerate(producers_by_node):
        for producer in producers:
            readers[producer].append(index)
    pending_counts = [len(needed) for needed in producers_by_node]
    ready = deque(index for index, count in enumerate(pending_counts) if count == 0)
    order = []
    while ready:
        order.append(index := ready.popleft())
        for reader in readers[index]:
            pending_counts[reader] -= 1
            if pending_counts[reader] == 0:
                ready.append(reader)
    if len(order) == len(pending_counts):
        replace_nodes(graph, [graph.node[index] for index in order])


def _list_read_values(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node and its inner graphs read."""
    yield from node.input
    for body in list_bodies(node):
        yield from count_uses(body)
