"""Seeded synthetic weights, for ONNX models that ship without real ones."""

import math
from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, helper, numpy_helper

from autopipe.compiler.frontends.draw import WeightPlan, draw_weights
from autopipe.compiler.frontends.onnx.facts import moments
from autopipe.compiler.frontends.onnx.facts.moments import Shapes
from autopipe.compiler.frontends.onnx.reading.tensors import Array, read_stored

_MASK = 100.0


def synthesize_weights(
    graph: GraphProto, weights: Mapping[str, Array], shapes: Shapes, seed: int
) -> dict[str, Array]:
    """Draw new values for all weights that have a role in a layer.

    A node that generates such a weight is replaced by an input, as stored weights are.
    """
    candidates = {
        name: values
        for name, values in {**weights, **_find_generated(graph, shapes)}.items()
        if values.dtype.kind == "f" and abs(values.flat[0]) < _MASK
    }
    roles = moments.find_roles(graph, frozenset(candidates), shapes, _read_scalars(graph))
    for index, node in reversed(list(enumerate(graph.node))):
        name = node.output[0]
        if name in roles:
            del graph.node[index]
            dtype = helper.np_dtype_to_tensor_dtype(candidates[name].dtype)
            graph.input.append(helper.make_tensor_value_info(name, dtype, shapes[name]))
    plans = {
        name: WeightPlan(role, candidates[name].shape, candidates[name].dtype)
        for name, role in roles.items()
    }
    return {**weights, **draw_weights(plans, seed)}


def has_constant_kernels(graph: GraphProto, weights: Mapping[str, Array], shapes: Shapes) -> bool:
    """Whether each kernel of the model is constant, so that comparing outputs proves nothing."""
    candidates = {**weights, **_find_generated(graph, shapes)}
    constant_names = {name for name, values in candidates.items() if _is_constant(values)}
    if not constant_names:  # roles take longer to find
        return False
    plan = moments.find_roles(graph, frozenset(candidates), shapes, {})
    kernel_names = {name for name, role in plan.items() if role.kind == "kernel"}
    return bool(kernel_names) and kernel_names <= constant_names


def _is_constant(values: Array) -> bool:
    """Tell whether all elements are equal: in most weights, the first and the last are not."""
    if not values.size or values.flat[0] != values.flat[-1]:
        return False
    return bool((values == values.flat[0]).all())


def _find_generated(graph: GraphProto, shapes: Shapes) -> dict[str, Array]:
    """Return the results of ConstantOfShape nodes as broadcast views."""
    arrays = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.output[0] in shapes:
            value = np.zeros(1, np.float32)
            for attribute in node.attribute:
                value = numpy_helper.to_array(attribute.t)
            shape = shapes[node.output[0]]
            if math.prod(shape) > 1:
                arrays[node.output[0]] = np.broadcast_to(value, shape)
    return arrays


def _read_scalars(graph: GraphProto) -> dict[str, float]:
    return {
        name: float(numpy_helper.to_array(tensor).flat[0])
        for name, tensor in read_stored(graph).items()
        if math.prod(tensor.dims) == 1
    }
