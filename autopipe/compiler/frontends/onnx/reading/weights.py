"""Separate the weights of a graph, data that the program takes as inputs."""

import math
from collections.abc import Collection, Mapping

from onnx import GraphProto, TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.operators import list_steering_inputs
from autopipe.compiler.frontends.onnx.reading.tensors import (
    DTYPES,
    Array,
    list_nodes,
    read_constant,
)
from autopipe.errors import ModelError

_DATA = frozenset({"float16", "float32", "float64", "int8", "uint8"})
_MAX_CONSTANT = 8192  # elements; above any list of axes or sizes


def detach_weights(graph: GraphProto) -> dict[str, TensorProto]:
    """Remove the weights from a graph and return them by name, in order.

    Weights are float, int8 and uint8 tensors with more than one element, except parameters of
    operators (the scales of Resize), and all tensors too large to be parameters. The rest (shapes,
    axes, limits) stays, since shape inference needs it. So do graph outputs: TVM loses a weight
    that is all that `main` returns.
    """
    results = {value.name for value in graph.output}
    steering = {name for node in list_nodes(graph) for name in list_steering_inputs(node)}
    weights: dict[str, TensorProto] = {}
    for index, tensor in reversed(list(enumerate(graph.initializer))):
        if tensor.name not in results and _is_weight(tensor, steering):
            _add_weight(weights, tensor)
            del graph.initializer[index]
    for index, node in reversed(list(enumerate(graph.node))):
        constant = read_constant(node)
        if constant is None or constant.name in results:
            continue
        if _is_weight(constant, steering):
            _add_weight(weights, constant)
            del graph.node[index]
    return dict(reversed(weights.items()))


def attach_weights(graph: GraphProto, weights: Mapping[str, Array]) -> None:
    """Replace inputs of a graph by initializers with the weights of the same names."""
    undeclare_inputs(graph, weights.keys())
    graph.initializer.extend(numpy_helper.from_array(data, name) for name, data in weights.items())


def undeclare_inputs(graph: GraphProto, names: Collection[str]) -> None:
    """Remove inputs from a graph."""
    for index, value in reversed(list(enumerate(graph.input))):
        if value.name in names:
            del graph.input[index]


def declare_weights(graph: GraphProto, weights: Mapping[str, TensorProto]) -> None:
    """Declare weights as typed inputs of a graph, after its own inputs."""
    graph.input.extend(
        helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
        for name, tensor in weights.items()
    )


def _is_weight(tensor: TensorProto, steering: set[str]) -> bool:
    count = math.prod(tensor.dims)
    if tensor.name in steering or count <= 1:
        return False
    return DTYPES[tensor.data_type][0] in _DATA or count > _MAX_CONSTANT


def _add_weight(weights: dict[str, TensorProto], tensor: TensorProto) -> None:
    if not tensor.name or tensor.name in weights:
        raise ModelError(f"more than one tensor is called {tensor.name!r}")
    weights[tensor.name] = tensor
