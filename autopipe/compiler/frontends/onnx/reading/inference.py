"""Shape inference that ignores declared shapes and wrong results of data propagation.

onnx propagates the values of small integer tensors, which gives computed shapes. It treats all as
vectors: the result of an `Unsqueeze` to a matrix keeps its values and counts as a vector in the
next `Mul` or `Gather`, and a `Cast` to fewer bits keeps values unchanged. During inference such a
node is therefore followed by an `Identity`, which stops propagation.

onnx also allocates a message for each element of a vector, known or not: a model that doubles a
vector repeatedly would fill the memory. During inference, nodes with long vectors of known shape
are therefore renamed to an unknown operator, which propagates nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from autopipe.compiler.frontends.onnx.reading.tensors import (
    list_graphs,
    list_nodes,
    replace_nodes,
)
from autopipe.compiler.frontends.onnx.reading.value_types import UNKNOWN, ValueType, read_types
from autopipe.errors import ModelError

_HIDDEN: Final = "before barrier:"
_SHORT: Final = 1024
"""Maximum bytes of tensors with values for inference; of larger ones it gets only the type."""

_EXACT: Final = {TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE}
"""Element types of shape computations."""

_LONG: Final = 2**12
"""Number of elements from which a vector is long; no shape is."""
_PROPAGATES: Final = frozenset({
    "Add", "Cast", "Concat", "Gather", "Identity", "Mul", "Neg", "Slice", "Squeeze", "Sub",
    "Unsqueeze",
})  # fmt: skip
"""Operators through which onnx propagates values of vectors."""
_UNKNOWN: Final = "autopipe.unknown"
"""A domain unknown to onnx."""

_PROPAGATED: Final = "Invalid rank for"
"""Prefix of onnx's error for inconsistent propagated values, which is no error of the model."""


def infer_types(model: ModelProto) -> ModelProto:
    """Infer types from the inputs; returns a copy of the model.

    Types after an inconsistent node stay unknown.
    """
    return _infer_once(model, strict=False)


def require_types(model: ModelProto) -> ModelProto:
    """Infer types as `infer_types`; raises ModelError where that fails."""
    try:
        return infer_types(model)
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(f"shapes cannot be inferred: {error}") from error


def note_types(model: ModelProto) -> None:
    """Replace the types of values and outputs, inner graphs included, by the inferred ones.

    Inference sees weights by shape only, so that none is copied.
    """
    inferred_model = require_types(_strip_large_tensors(model))
    for graph, inferred_graph in zip(
        list_graphs(model.graph), list_graphs(inferred_model.graph), strict=True
    ):
        del graph.value_info[:]
        graph.value_info.extend(inferred_graph.value_info)
        for output, inferred_output in zip(graph.output, inferred_graph.output, strict=True):
            output.type.CopyFrom(inferred_output.type)


def infer_strictly(model: ModelProto) -> ModelProto:
    """Infer types from the inputs; returns a copy of the model.

    Declared shapes of outputs, also of branches and bodies, are used only if none is inferred.
    Raises onnx's `InferenceError` for inconsistent operators.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in _list_outputs(copy):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    inferred_model = _infer_once(copy, strict=True)
    if _restore_declared(copy, inferred_model, model):
        with suppress(onnx.shape_inference.InferenceError):  # declared shapes are inconsistent
            inferred_model = _infer_once(copy, strict=True)
    return inferred_model


def _infer_once(model: ModelProto, *, strict: bool) -> ModelProto:
    copy = _stop_values(model, onnx.shape_inference.infer_shapes(model))
    modes = {"check_type": strict, "strict_mode": strict}
    try:
        inferred_model = onnx.shape_inference.infer_shapes(copy, **modes, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        if strict and _PROPAGATED not in str(error):
            raise
        inferred_model = onnx.shape_inference.infer_shapes(copy, **modes)
    if copy is model:
        return inferred_model
    for graph in list_graphs(inferred_model.graph):
        _drop_barriers(graph)
        for node in graph.node:
            if node.domain == _UNKNOWN:
                node.ClearField("domain")
    del inferred_model.opset_import[len(model.opset_import) :]
    return inferred_model


def _stop_values(model: ModelProto, typed_model: ModelProto) -> ModelProto:
    """Add barriers and hide operators on long vectors; returns the model itself if it needs none.

    `typed_model` is the model with types inferred without data propagation.
    """
    types: dict[str, ValueType] = {}
    for graph in list_graphs(typed_model.graph):
        types.update(read_types(graph))
    long_names = {name for name, kind in types.items() if _is_long_vector(kind)}
    if not long_names and not any(map(_may_mislead, list_nodes(model.graph))):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(typed_model if long_names else model)
    for graph in list_graphs(copy.graph):
        _hide_long(graph, long_names, types)
        _put_barriers(graph, types)
    copy.opset_import.add(domain=_UNKNOWN, version=1)
    return copy


def _is_long_vector(kind: ValueType) -> bool:
    return kind.shape is not None and len(kind.shape) == 1 and kind.shape[0] > _LONG


def _hide_long(graph: GraphProto, long_names: set[str], types: Mapping[str, ValueType]) -> None:
    """Rename operators that would propagate values of long vectors to an unknown domain."""
    for node in graph.node:
        is_plain = node.op_type in _PROPAGATES and not node.domain
        is_known = all(types.get(name, UNKNOWN).shape is not None for name in node.output)
        if is_plain and is_known and not long_names.isdisjoint([*node.input, *node.output]):
            node.domain = _UNKNOWN


def _list_outputs(model: ModelProto) -> Iterator[ValueInfoProto]:
    """Yield the outputs of all graphs."""
    for graph in list_graphs(model.graph):
        yield from graph.output


def _restore_declared(copy: ModelProto, inferred_model: ModelProto, model: ModelProto) -> bool:
    """Restore declared shapes of outputs without an inferred one; returns whether there are any."""
    has_restored = False
    for value, inferred_value, declared_value in zip(
        _list_outputs(copy), _list_outputs(inferred_model), _list_outputs(model), strict=True
    ):
        kind = declared_value.type.tensor_type
        if kind.HasField("shape") and not inferred_value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(kind.shape)
            has_restored = True
    return has_restored


def _may_mislead(node: NodeProto) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Cast":
        return all(field.i not in _EXACT for field in node.attribute if field.name == "to")
    return bool(node.op_type == "Unsqueeze")


def _put_barriers(graph: GraphProto, types: Mapping[str, ValueType]) -> None:
    """Insert an Identity after each node with wrong data propagation."""
    nodes = list(_with_barriers(graph, types))
    if len(nodes) > len(graph.node):
        replace_nodes(graph, nodes)


def _with_barriers(graph: GraphProto, types: Mapping[str, ValueType]) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        is_list = node.op_type == "Unsqueeze" and types.get(node.output[0], UNKNOWN).rank == 1
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


def _strip_large_tensors(model: ModelProto) -> ModelProto:
    """Copy a model with large tensors replaced by inputs of their types."""
    graph = model.graph
    large = [tensor for tensor in graph.initializer if tensor.ByteSize() > _SHORT]
    return helper.make_model(
        helper.make_graph(
            graph.node,
            graph.name or "model",
            [
                *graph.input,
                *(
                    helper.make_tensor_value_info(each.name, each.data_type, each.dims)
                    for each in large
                ),
            ],
            graph.output,
            [tensor for tensor in graph.initializer if tensor.ByteSize() <= _SHORT],
            value_info=graph.value_info,
        ),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
