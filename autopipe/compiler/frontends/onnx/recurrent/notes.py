"""Notes on recurrent layers: output shapes that ONNX does not infer, and finite weights."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper

from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.tensors import Array, list_nodes
from autopipe.compiler.frontends.onnx.reading.value_types import read_types
from autopipe.compiler.recurrence.form import GATES

FINITE: Final = "autopipe_finite_weights"
"""Attribute of a node with finite recurrent weights. The gate rejects files that contain it."""
_LAYER: Final = "DynamicQuantizeLSTM"
_WEIGHTS: Final = 2
"""Index of the recurrent weights among the inputs of a node; the second dimension of those of
`_LAYER` is the size of a state."""


def note_finite_weights(model: ModelProto, weights: Mapping[str, Array]) -> None:
    """Add an attribute to each recurrent node with known finite recurrent weights.

    When a node is converted, weights are parameters without known values.
    """
    for node in list_nodes(model.graph):
        if node.op_type in GATES and len(node.input) > _WEIGHTS:
            values = weights.get(node.input[_WEIGHTS])
            if values is not None and np.isfinite(values).all():
                node.attribute.append(helper.make_attribute(FINITE, 1))


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
    data, weights = known_shapes[node.input[0]], known_shapes.get(node.input[_WEIGHTS], ())
    if len(data) != 3 or len(weights) != 3:  # noqa: PLR2004 - reported by the converter
        return
    (length, batch, _), (directions, hidden_size, _) = data, weights
    state = [directions, batch, hidden_size]
    shapes = ([length, *state], state, state)
    for name, shape in zip(node.output, shapes, strict=False):
        if name:
            value_info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            graph.value_info.append(value_info)
