"""Note the output shapes of recurrent layers that ONNX's shape inference does not support."""

from typing import Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from autopipe.compiler.frontends.onnx.reading.inference import infer_types

_LAYER: Final = "DynamicQuantizeLSTM"
_HIDDEN: Final = 2
"""Its input of recurrent weights, which has the size of a state as second dimension."""


def note_shapes(model: ModelProto) -> int:
    """Add the output shapes of com.microsoft layers; returns the number of unresolved layers.

    Output shapes follow from input shapes. One layer feeds the next, so there is a round of
    inference for each.
    """
    layers = [node for node in model.graph.node if node.op_type == _LAYER]
    weight_shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    while layers:
        try:
            graph = infer_types(model).graph
        except onnx.shape_inference.InferenceError:
            break
        known_shapes = weight_shapes | {
            value.name: _read_sizes(value) for value in (*graph.input, *graph.value_info)
        }
        ready = [node for node in layers if known_shapes.get(node.input[0])]
        if not ready:
            break
        for node in ready:
            _note_shapes(
                model.graph,
                node,
                known_shapes[node.input[0]],
                weight_shapes.get(node.input[_HIDDEN], []),
            )
        layers = [node for node in layers if node not in ready]
    return len(layers)


def _note_shapes(graph: GraphProto, node: NodeProto, data: list[int], weights: list[int]) -> None:
    if len(data) != 3 or len(weights) != 3:  # noqa: PLR2004 - reported by the converter
        return
    (length, batch, _), (directions, hidden_size, _) = data, weights
    state = [directions, batch, hidden_size]
    shapes = ([length, *state], state, state)
    for name, shape in zip(node.output, shapes, strict=False):
        if name:
            value_info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            graph.value_info.append(value_info)


def _read_sizes(value: ValueInfoProto) -> list[int]:
    """Return the static sizes of a value, [] if one is unknown."""
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value for dim in dims] if all(dim.dim_value for dim in dims) else []
