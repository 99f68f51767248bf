"""What exporters write and onnxruntime takes, said as ONNX says it.

Negative and meaningless names stand for sizes that are not known, graphs have no names, nodes are
in any order, `ai.onnx` is another name of the standard domain, and a tensor is stored twice. None
of it makes a model mean something else, and none of it may reach a library that says nothing, or
something else, about it.
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
from autopipe.compiler.frontends.onnx.reading.tensors import list_bodies, list_graphs
from autopipe.compiler.frontends.onnx.rewriting import group_scales

NAMELESS: Final = re.compile(r"\?|-1|[Nn]one|")
"""Names of open dimensions that say nothing: two that are called so need not be equal."""

_UNNAMED: Final = "model"
_STANDARD: Final = "ai.onnx"
_OPTIONAL_SCALES: Final = 13
"""The opset from which on Resize may have no scales; before it, sizes came with empty ones."""
_SCALE_OF_GROUP: Final = 18
_SCALE_OF_CHANNEL: Final = 21
"""The opsets of GroupNormalization's two definitions; onnx's checker refuses the first one."""
_FLOATS: Final = ("value_float", "value_floats")


def settle_form(model: ModelProto) -> None:
    """Bring a model into the form that onnx's checker and TVM know; what has it stays as it is."""
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


def give_scalars(model: ModelProto) -> None:
    """Have each Range read numbers where it reads lists of one number; onnxruntime takes both."""
    ranges = [
        (inner, node)
        for inner in list_graphs(model.graph)
        for node in inner.node
        if _is_range(node)
    ]
    if not ranges:
        return
    try:
        inferred = infer_types(model)
    except onnx.shape_inference.InferenceError:
        return  # of another node; it is told when shapes are inferred for good
    lists = {name for inner in list_graphs(inferred.graph) for name in _list_unit_vectors(inner)}
    names = Names(model.graph)
    for graph, node in ranges:
        for index, name in enumerate(node.input):
            if name in lists:
                node.input[index] = names.fresh(name)
                made = helper.make_node("Squeeze", [name], [node.input[index]])
                graph.node.insert(list(graph.node).index(node), made)


def name_types(graph: GraphProto, inferred: GraphProto) -> None:
    """Give outputs the type that was inferred: all in branches and bodies, and untyped ones."""
    (_, *bodies_of), (_, *known_of) = list_graphs(graph), list_graphs(inferred)
    for body, typed in zip(bodies_of, known_of, strict=True):
        for value, known in zip(body.output, typed.output, strict=True):
            value.type.CopyFrom(known.type)
    for value, known in zip(graph.output, inferred.output, strict=True):
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and not kind.elem_type:
            kind.elem_type = known.type.tensor_type.elem_type


def _is_range(node: NodeProto) -> bool:
    return node.op_type == "Range" and not node.domain


def _list_unit_vectors(graph: GraphProto) -> Iterator[str]:
    for value in (*graph.input, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if [dim.dim_value for dim in dims] == [1]:
            yield value.name
    yield from (tensor.name for tensor in graph.initializer if list(tensor.dims) == [1])


def _open_dimension(value: ValueInfoProto) -> None:
    """Leave a dimension open that is negative."""
    if value.type.HasField("tensor_type"):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")


def _drop_shadowed(stored: MutableSequence[TensorProto]) -> None:
    """Drop tensors without a name, and all but the last of those with one name."""
    known = {""}
    for index, tensor in reversed(list(enumerate(stored))):
        if tensor.name in known:
            del stored[index]
        known.add(tensor.name)


def _store_list(node: NodeProto) -> None:
    """Make a constant's list of floats a tensor: TVM takes them for 64 bits each."""
    for attribute in node.attribute:
        if attribute.name in _FLOATS:
            values = attribute.f if attribute.name == _FLOATS[0] else list(attribute.floats)
            tensor = numpy_helper.from_array(np.array(values, np.float32))
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def _list_empty(constant: NodeProto) -> Iterator[str]:
    """Yield the name of a constant that holds nothing."""
    if any(field.name == "value" and list(field.t.dims) == [0] for field in constant.attribute):
        yield from constant.output


def _drop_empty_sizes(resize: NodeProto, empty: set[str]) -> None:
    """Leave out scales or sizes that hold nothing, as they may be since opset 13."""
    for slot in (2, 3):
        if len(resize.input) > slot and resize.input[slot] in empty:
            resize.input[slot] = ""


def _sort_results(topk: NodeProto) -> None:
    """Ask for results in order where any order is right: then all runtimes return the same."""
    for attribute in topk.attribute:
        if attribute.name == "sorted":
            attribute.i = 1


def _is_sorted(graph: GraphProto) -> bool:
    """Whether each node stands behind those that it reads of."""
    later = Counter(name for node in graph.node for name in node.output if name)
    for node in graph.node:
        if any(later[name] for name in _list_read_values(node)):
            return False
        later.subtract(name for name in node.output if name)
    return True


def _sort_nodes(graph: GraphProto) -> None:
    """Put each node behind those that it reads of; a circle stays, and the checker tells of it."""
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [
        {maker[name] for name in _list_read_values(node) if name in maker} for node in graph.node
    ]
    readers = defaultdict(list)
    for index, needed in enumerate(needs):
        for made in needed:
            readers[made].append(index)
    missing = [len(needed) for needed in needs]
    ready = deque(index for index, count in enumerate(missing) if count == 0)
    order = []
    while ready:
        order.append(index := ready.popleft())
        for reader in readers[index]:
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    if len(order) == len(missing):
        nodes = [graph.node[index] for index in order]
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _list_read_values(node: NodeProto) -> Iterator[str]:
    """Yield what a node reads, in its inner graphs too."""
    yield from node.input
    for inner in (graph for body in list_bodies(node) for graph in list_graphs(body)):
        for below in inner.node:
            yield from below.input
        yield from (value.name for value in inner.output)
