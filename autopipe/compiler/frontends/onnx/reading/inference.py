"""Shape inference that believes neither declared shapes nor values that it makes up.

onnx propagates the values of small integer tensors, which gives shapes that are computed. It takes
all for lists: what `Unsqueeze` makes a matrix of keeps its values and counts as a list in the next
`Mul` or `Gather`, and a `Cast` to fewer bits leaves values as they were. So nothing is propagated
past such a node: while types are inferred, an `Identity` stands behind it, which stops values.

Of each element of a list it makes a message, known or not: a list that a model doubles some times
would fill the memory. So values are propagated by no node of long lists whose shape is known
without them: while types are inferred it is an operator that onnx does not know.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs

_HIDDEN: Final = "before barrier:"
_EXACT: Final = {TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE}
"""Types that hold what sizes are made of."""

_LONG: Final = 2**12
"""Elements from which on a list is long; no shape is."""
_PROPAGATES: Final = frozenset({
    "Add", "Cast", "Concat", "Gather", "Identity", "Mul", "Neg", "Slice", "Squeeze", "Sub",
    "Unsqueeze",
})  # fmt: skip
"""Operators that onnx propagates values of lists by."""
_UNKNOWN: Final = "autopipe.unknown"
"""The domain of operators that onnx does not know."""

_PROPAGATED: Final = "Invalid rank for"
"""How onnx says that propagated values do not fit each other, which is no error of the model."""


def infer_types(model: ModelProto) -> ModelProto:
    """Return the model with the types that follow from its inputs; it stays as it is.

    Types behind a node that does not fit stay unknown.
    """
    return _infer_once(model, strict=False)


def infer_strictly(model: ModelProto) -> ModelProto:
    """Return the model with the types that follow from its inputs; it stays as it is.

    What it declares of an output, of a branch or a body too, is believed where nothing is inferred.
    Raises onnx's `InferenceError` where operators do not fit each other.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in _list_outputs(copy):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    inferred = _infer_once(copy, strict=True)
    if _restore_declared(copy, inferred, model):
        with suppress(onnx.shape_inference.InferenceError):  # what is declared contradicts itself
            inferred = _infer_once(copy, strict=True)
    return inferred


def _infer_once(model: ModelProto, *, strict: bool) -> ModelProto:
    copy = _stop_values(model, onnx.shape_inference.infer_shapes(model))
    modes = {"check_type": strict, "strict_mode": strict}
    try:
        inferred = onnx.shape_inference.infer_shapes(copy, **modes, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        if strict and _PROPAGATED not in str(error):
            raise
        inferred = onnx.shape_inference.infer_shapes(copy, **modes)
    if copy is model:
        return inferred
    for graph in list_graphs(inferred.graph):
        _drop_barriers(graph)
        for node in graph.node:
            if node.domain == _UNKNOWN:
                node.ClearField("domain")
    del inferred.opset_import[len(model.opset_import) :]
    return inferred


def _stop_values(model: ModelProto, known: ModelProto) -> ModelProto:
    """Return a model with barriers and without operators of long lists, itself if it needs none.

    `known` is the model with its types as far as they follow without values.
    """
    long = _list_long(known)
    nodes = (node for graph in list_graphs(model.graph) for node in graph.node)
    if not long and not any(map(_may_mislead, nodes)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(known if long else model)
    shapes, ranks = _read_shapes(known) if long else {}, _read_ranks(known)
    for graph in list_graphs(copy.graph):
        _hide_long(graph, long, shapes)
        _put_barriers(graph, ranks)
    copy.opset_import.add(domain=_UNKNOWN, version=1)
    return copy


def _list_long(inferred: ModelProto) -> set[str]:
    """Return the names of long lists, stored or computed."""
    found: set[str] = set()
    for graph in list_graphs(inferred.graph):
        found.update(
            tensor.name
            for tensor in graph.initializer
            if len(tensor.dims) == 1 and tensor.dims[0] > _LONG
        )
        for value in (*graph.input, *graph.value_info, *graph.output):
            dims = value.type.tensor_type.shape.dim
            if len(dims) == 1 and dims[0].dim_value > _LONG:
                found.add(value.name)
    return found


def _read_shapes(inferred: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the static shapes of all values, and of what is stored."""
    found = {
        tensor.name: tuple(tensor.dims)
        for graph in list_graphs(inferred.graph)
        for tensor in graph.initializer
    }
    for graph in list_graphs(inferred.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            dims = value.type.tensor_type.shape.dim
            if value.type.tensor_type.HasField("shape") and all(
                d.HasField("dim_value") for d in dims
            ):
                found[value.name] = tuple(dim.dim_value for dim in dims)
    return found


def _hide_long(graph: GraphProto, long: set[str], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Make unknown operators of those that would propagate values of long lists."""
    for node in graph.node:
        is_plain = node.op_type in _PROPAGATES and not node.domain
        known = all(name in shapes for name in node.output)
        if is_plain and known and not long.isdisjoint([*node.input, *node.output]):
            node.domain = _UNKNOWN


def _list_outputs(model: ModelProto) -> Iterator[ValueInfoProto]:
    """Yield the outputs of all graphs."""
    for graph in list_graphs(model.graph):
        yield from graph.output


def _restore_declared(copy: ModelProto, inferred: ModelProto, model: ModelProto) -> bool:
    """Give a copy the shapes that a model declares where none is inferred; tell if there are."""
    restored = False
    for value, known, declared in zip(
        _list_outputs(copy), _list_outputs(inferred), _list_outputs(model), strict=True
    ):
        kind = declared.type.tensor_type
        if kind.HasField("shape") and not known.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(kind.shape)
            restored = True
    return restored


def _may_mislead(node: NodeProto) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Cast":
        return all(field.i not in _EXACT for field in node.attribute if field.name == "to")
    return bool(node.op_type == "Unsqueeze")


def _read_ranks(inferred: ModelProto) -> dict[str, int]:
    return {
        value.name: len(value.type.tensor_type.shape.dim)
        for graph in list_graphs(inferred.graph)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }


def _put_barriers(graph: GraphProto, ranks: Mapping[str, int]) -> None:
    """Put an Identity behind each node whose values would be taken for others."""
    nodes = list(_with_barriers(graph, ranks))
    if len(nodes) == len(graph.node):
        return
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _with_barriers(graph: GraphProto, ranks: Mapping[str, int]) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        is_list = node.op_type == "Unsqueeze" and ranks.get(node.output[0], 0) == 1
        if _may_mislead(node) and not is_list:
            (name,) = node.output
            node.output[0] = _HIDDEN + name
            yield helper.make_node("Identity", [node.output[0]], [name])


def _drop_barriers(graph: GraphProto) -> None:
    for index, node in reversed(list(enumerate(graph.node))):
        if node.op_type == "Identity" and node.input[0].startswith(_HIDDEN):
            del graph.node[index]
        for place, name in enumerate(node.output):
            node.output[place] = name.removeprefix(_HIDDEN)
    for index, value in reversed(list(enumerate(graph.value_info))):
        if value.name.startswith(_HIDDEN):
            del graph.value_info[index]
