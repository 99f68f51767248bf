"""Nodes that random ONNX graphs grow by whose sums may round in another order."""

import numpy as np


def _reduce(graph):
    name = graph.any_value("f")
    if name is None:
        return
    value = graph.values[name]
    axes = [axis for axis in range(value.ndim) if graph.chance()]
    kept = int(graph.chance())
    if graph.opset >= 13:
        listed = graph.constant(np.array(axes, np.int64))
        made = graph.add("ReduceSum", [name, listed], keepdims=kept)
        if made is not None and not kept and graph.chance():
            graph.add("Unsqueeze", [*made, listed])
    elif axes:
        graph.add("ReduceSum", [name], axes=axes, keepdims=kept)


def _convolution(graph):
    name = graph.any_value("f", rank=graph.pick([3, 4]))
    if name is not None:
        convolve(graph, name)


def convolve(graph, name):
    value = graph.values[name]
    if value.dtype != np.float64 or value.ndim < 3 or 0 in value.shape:
        return
    channels, spatial = value.shape[1], value.ndim - 2
    kind = graph.pick(["Conv", "Conv", "ConvTranspose"])
    out = graph.pick([channels, value.shape[-1], 4])
    size = graph.pick([1, min(3, *value.shape[2:])])
    shape = [out, channels] if kind == "Conv" else [channels, out]
    weight = graph.constant(graph.random.standard_normal([*shape, *[size] * spatial]))
    bias = [graph.constant(graph.random.standard_normal(out))] if graph.chance() else []
    attributes = (
        {"pads": [graph.pick([0, 1])] * 2 * spatial} if graph.chance(0.3) and size > 1 else {}
    )
    if graph.chance(0.1):
        weight = (graph.add("Identity", [weight]) or [weight])[0]
    made = graph.add(kind, [name, weight, *bias], **attributes)
    for _ in range(int(graph.random.integers(3))):
        if made is None:
            return
        made = _scale(graph, made[0])


def _scale(graph, name):
    value = graph.values[name]
    if graph.chance(0.3):
        return _norm(graph, name)
    by_channel = [value.shape[1], *[1] * (value.ndim - 2)]
    along = [*[1] * (value.ndim - 1), value.shape[-1]]
    shape = graph.pick(
        [by_channel, [1, *by_channel], [value.shape[-1]], along, [], [1], [1] * (value.ndim + 1)]
    )
    numbers = graph.random.uniform(0.5, 2, shape)
    operands = [name, graph.constant(numbers)]
    if graph.chance(0.3):
        operands.reverse()
    return graph.add(graph.pick(["Mul", "Mul", "Add"]), operands)


def _norm(graph, name=None):
    name = name or graph.any_value("f")
    if name is None or graph.values[name].ndim < 2 or graph.values[name].dtype != np.float64:
        return None
    channels = graph.values[name].shape[1]
    values = [graph.random.uniform(0.5, 2, channels) for _ in range(4)]
    if graph.opset < 14:
        return None
    return graph.add("BatchNormalization", [name, *map(graph.constant, values)], epsilon=1e-3)


def _product(graph):
    name = graph.any_value("f", rank=2)
    if name is None or graph.values[name].dtype != np.float64:
        return
    rows, columns = graph.values[name].shape
    weight = graph.constant(graph.random.standard_normal([columns, 6]))
    made = graph.add("Gemm", [name, weight, graph.constant(graph.random.standard_normal(6))])
    if made is None:
        return
    shape = graph.pick([[rows, 6, 1], [1, rows, 6], [rows, 6]])
    turned = graph.add("Reshape", [*made, graph.constant(np.array(shape, np.int64))])
    if turned is not None:
        graph.add(
            graph.pick(["Mul", "Add"]), [*turned, graph.constant(graph.random.uniform(0.5, 2, 6))]
        )
    if graph.chance():
        graph.add("Relu", made)


STEPS = (_reduce, _convolution, _convolution, _convolution, _norm, _product, _product)
