"""Note the output shapes of recurrent layers that ONNX's shape inference does not support."""

from collections.abc import Mapping
from typing import Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper

from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.value_types import read_types

_LAYER: Final = "DynamicQuantizeLSTM"
_HIDDEN: Final = 2
"""Its input of recurrent weights, which has the size of a state as second dimension."""


def note_shapes(model: ModelProto) -> int:
    """Add the output shapes of com.microsoft layers; returns the number of unresolved layers.

    Output shapes follow from input shapes. One layer feeds the next, so there is a round of
    inference for each.
    """
    layers = [node for node in model.graph.node if node.op_type == _LAYER]
    while layers:
        try:
            graph = infer_types(model).graph
        except onnx.shape_inference.InferenceError:
            break
        shapes = {name: kind.shape for name, kind in read_types(graph).items() if kind.shape}
        ready = [node for node in layers if node.input[0] in shapes]
        if not ready:
            break
        for node in ready:
            _note_shapes(model.graph, node, shapes)
        layers = [node for node in layers if node not in ready]
    return len(layers)


def _note_shapes(
    graph: GraphProto, node: NodeProto, known_shapes: Mapping[str, tuple[int, ...]]
) -> None:
    data, weights = known_shapes[node.input[0]], known_shapes.get(node.input[_HIDDEN], ())
    if len(data) != 3 or len(weights) != 3:  # noqa: PLR2004 - reported by the converter
        return
    (length, batch, _), (directions, hidden_size, _) = data, weights
    state = [directions, batch, hidden_size]
    shapes = ([length, *state], state, state)
    for name, shape in zip(node.output, shapes, strict=False):
        if name:
            value_info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            graph.value_info.append(value_info)
