"""Seeded synthetic weights, for models that ship without real ones.

Every layer's output has variance one: a kernel is drawn with variance 1 / (fan-in x expected
square of its input), which behind a ReLU is 2 / fan-in (He et al., 2015, arXiv:1502.01852).
"""

import hashlib
import math
from collections.abc import Mapping

import numpy as np
from onnx import helper, numpy_helper

from autopipe.compiler.frontends.onnx import moments
from autopipe.compiler.frontends.onnx.moments import Role, Shapes
from autopipe.compiler.frontends.onnx.tensors import Array, Proto

_BIAS = 0.1
_SPREAD = 0.2
_CHUNK = 2**16
_MASK = 100.0
# Four 16-bit numbers, added: their mean, and the square root of their variance.
_SUM_MEAN = 2 * (2**16 - 1)
_SUM_STD = math.sqrt(4 * (2**32 - 1) / 12)


def synthesize(
    graph: Proto, weights: Mapping[str, Array], shapes: Shapes, seed: int
) -> dict[str, Array]:
    """Return weights with every one that has a role in a layer drawn anew.

    A node of the graph that generated one becomes an input, as the stored ones are.
    """
    candidates = {
        name: values
        for name, values in {**weights, **_generated(graph, shapes)}.items()
        if values.dtype.kind == "f" and abs(values.flat[0]) < _MASK
    }
    plan = moments.roles(graph, frozenset(candidates), shapes, _scalars(graph))
    for index, node in reversed(list(enumerate(graph.node))):
        name = node.output[0]
        if name in plan:
            del graph.node[index]
            dtype = helper.np_dtype_to_tensor_dtype(candidates[name].dtype)
            graph.input.append(helper.make_tensor_value_info(name, dtype, shapes[name]))
    drawn = {name: _draw(f"{seed}:{name}", role, candidates[name]) for name, role in plan.items()}
    return {**weights, **drawn}


def all_constant(graph: Proto, weights: Mapping[str, Array], shapes: Shapes) -> bool:
    """Whether each kernel of the model holds one value only, so that comparing proves nothing."""
    candidates = {**weights, **_generated(graph, shapes)}
    plan = moments.roles(graph, frozenset(candidates), shapes, {})
    kernels = [candidates[name] for name, role in plan.items() if role.kind == "kernel"]
    return bool(kernels) and all((values == values.flat[0]).all() for values in kernels)


def _generated(graph: Proto, shapes: Shapes) -> dict[str, Array]:
    """Return what ConstantOfShape nodes generate, without the memory for it."""
    found = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.output[0] in shapes:
            value = np.zeros(1, np.float32)
            for attribute in node.attribute:
                value = numpy_helper.to_array(attribute.t)
            shape = shapes[node.output[0]]
            if math.prod(shape) > 1:
                found[node.output[0]] = np.broadcast_to(value, shape)
    return found


def _scalars(graph: Proto) -> dict[str, float]:
    stored = {tensor.name: tensor for tensor in graph.initializer if math.prod(tensor.dims) == 1}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            stored[node.output[0]] = node.attribute[0].t
    return {
        name: float(numpy_helper.to_array(tensor).flat[0])
        for name, tensor in stored.items()
        if math.prod(tensor.dims) == 1
    }


def _draw(key: str, role: Role, like: Array) -> Array:
    """Return a weight for a role, with the shape and type of the one it replaces."""
    z = _normal(key, like.size)
    deviation = math.sqrt(role.data.variance)
    if role.kind == "kernel":
        z *= _rounded(1 / math.sqrt(role.fan_in * role.data.square))
    elif role.kind == "shift":
        z *= _BIAS
    elif role.kind == "scale":
        z = _around_one(z)
    elif role.kind == "mean":
        z = _rounded(role.data.mean) + z * _rounded(_BIAS * deviation)
    elif role.kind == "variance":
        z = _around_one(z) * _rounded(role.data.variance)
    return z.reshape(like.shape).astype(like.dtype)


def _rounded(number: float) -> np.float32:
    """Return a number to six digits: a last bit that differs between machines is gone."""
    return np.float32(f"{number:.6g}")


def _around_one(z: Array) -> Array:
    """Return numbers around one, none of them near zero."""
    return 1 + _SPREAD * z


def _normal(key: str, count: int) -> Array:
    """Return nearly normal float32 numbers, the same on every machine and numpy.

    Each is the sum of four uniform 16-bit integers (Irwin-Hall): integers are exact everywhere,
    while a generator's own normals depend on the C library and may change with numpy.
    """
    bits = np.random.PCG64(int.from_bytes(hashlib.sha256(key.encode()).digest()))
    numbers = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        parts = bits.random_raw(size).view(np.uint16).reshape(size, 4).astype(np.int32)
        total = parts[:, 0] + parts[:, 1] + parts[:, 2] + parts[:, 3] - _SUM_MEAN
        numbers[start : start + size] = total * np.float32(1 / _SUM_STD)
    return numbers
