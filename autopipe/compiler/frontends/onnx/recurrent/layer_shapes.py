"""Notes the shapes of layers that ONNX's inference does not know, so that others become known."""

from typing import Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from autopipe.compiler.frontends.onnx.reading.inference import infer_types

_LAYER: Final = "DynamicQuantizeLSTM"
_HIDDEN: Final = 2
"""Its input whose second dimension is as long as a state: the recurrent weights."""


def note_shapes(model: ModelProto) -> int:
    """Add the shapes of what layers of com.microsoft compute, and return of how many they are open.

    They are known where those of a layer's inputs are. One layer feeds the next, so there is a
    round of inference for each.
    """
    layers = [node for node in model.graph.node if node.op_type == _LAYER]
    stored = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    while layers:
        try:
            graph = infer_types(model).graph
        except onnx.shape_inference.InferenceError:
            break
        known = stored | {
            value.name: _read_sizes(value) for value in (*graph.input, *graph.value_info)
        }
        ready = [node for node in layers if known.get(node.input[0])]
        if not ready:
            break
        for node in ready:
            _note_shapes(
                model.graph, node, known[node.input[0]], stored.get(node.input[_HIDDEN], [])
            )
        layers = [node for node in layers if node not in ready]
    return len(layers)


def _note_shapes(graph: GraphProto, node: NodeProto, data: list[int], weights: list[int]) -> None:
    if len(data) != 3 or len(weights) != 3:  # noqa: PLR2004 - the converter says what is wrong
        return
    (length, batch, _), (directions, hidden, _) = data, weights
    state = [directions, batch, hidden]
    shapes = ([length, *state], state, state)
    for name, shape in zip(node.output, shapes, strict=False):
        if name:
            made = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            graph.value_info.append(made)


def _read_sizes(value: ValueInfoProto) -> list[int]:
    """Return the sizes of a value if all are known, else an empty list."""
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value for dim in dims] if all(dim.dim_value for dim in dims) else []
