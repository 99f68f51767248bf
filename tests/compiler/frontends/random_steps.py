"""Nodes that random ONNX graphs grow by, most of operators that clean-up rewrites."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.compiler.frontends import random_layers


def _operand(graph, value):
    """Return a constant that broadcasts with a value, often one that does nothing."""
    shape = [size if graph.chance() else 1 for size in value.shape]
    form = int(graph.random.integers(5))
    if form == 0:
        shape = []
    elif form == 1 and shape:
        shape = shape[int(graph.random.integers(len(shape))) :]
    elif form == 2:
        shape = [1, *shape]
    elif form == 3 and value.ndim > 1:
        shape = [value.shape[1], *[1] * (value.ndim - 2)]
    if graph.chance(0.6):
        filled = [0.0, 1.0, 1.0, 2.0] if value.dtype.kind != "f" else [0.0, -0.0, 1.0, 1.0, 0.5]
        return graph.constant(np.full(shape, graph.pick(filled), value.dtype))
    values = graph.numbers(shape, value.dtype)
    return graph.constant(np.where(values == 0, 1, values) if value.dtype.kind == "i" else values)


def _arithmetic(graph):
    name = graph.any_value("fi")
    if name is None:
        return
    kind = graph.pick(["Add", "Sub", "Mul", "Div"])
    operands = [name, _operand(graph, graph.values[name])]
    if graph.chance(0.3) and (kind != "Div" or graph.values[name].dtype.kind == "f"):
        operands.reverse()
    graph.add(kind, operands)


def _pair(graph):
    one, other = graph.any_value("fi"), graph.any_value("fi")
    if one is not None and graph.values[one].dtype == graph.values[other].dtype:
        kinds = ["Add", "Sub", "Mul", "Max", "Min", "Equal"]
        is_float = graph.values[one].dtype.kind == "f"
        graph.add(graph.pick(kinds if is_float else kinds[:3]), [one, other])


def _unary(graph):
    name = graph.any_value("f")
    if name is not None:
        graph.add(graph.pick(["Relu", "Neg", "Abs", "Identity", "Reciprocal", "Floor"]), [name])


def _alone(graph):
    name = graph.any_value("f")
    if name is not None:  # the reference of a sum begins with 0, which -0.0 does not survive
        sums = ["Sum", "Mean"] if graph.is_rounded else []
        graph.add(graph.pick(["Identity", "Max", "Min", *sums]), [name])


def _dropout(graph):
    name = graph.any_value("f")
    if name is None:
        return
    inputs, attributes = [name], {}
    if graph.opset >= 12 and graph.chance():
        inputs = [name, graph.pick(["", graph.constant(np.float32(0.3))])]
        inputs.append(graph.constant(np.zeros((), bool)))
    elif graph.opset < 12:
        attributes = {"ratio": 0.4}
    made = graph.add("Dropout", inputs, outputs=graph.pick([1, 2]), **attributes)
    if made is not None and len(made) > 1 and graph.chance(0.7):
        number = graph.add("Cast", [made[1]], to=TensorProto.FLOAT)
        if number is not None and graph.values[made[0]].dtype == np.float32:
            graph.add("Add", [made[0], number[0]])


def _cast(graph):
    name = graph.any_value()
    types = [np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_]
    if name is None:
        return
    value = graph.values[name]
    if value.dtype.kind == "f":
        types = types[:3]  # what an infinity is as an integer is left open
    made = graph.add(
        "Cast", [name], to=helper.np_dtype_to_tensor_dtype(np.dtype(graph.pick(types)))
    )
    if made is not None and graph.chance():
        graph.add("Cast", made, to=helper.np_dtype_to_tensor_dtype(value.dtype))


def _transpose(graph):
    name = graph.any_value()
    rank = 0 if name is None else graph.values[name].ndim
    if rank:
        order = list(range(rank)) if graph.chance(0.2) else graph.random.permutation(rank).tolist()
        attributes = {"perm": order} if graph.chance(0.8) else {}
        made = graph.add("Transpose", [name], **attributes)
        if made is not None and graph.chance(0.4):
            graph.add("Transpose", made, perm=graph.random.permutation(rank).tolist())


def _reshape(graph):
    name = graph.any_value()
    if name is None:
        return
    value = graph.values[name]
    shape = list(value.shape)
    form = int(graph.random.integers(5))
    if form == 0:
        shape = [-1]
    elif form == 1:
        shape = [1, *shape]
    elif form == 2 and shape:
        shape = [*([0] * int(graph.random.integers(len(shape)))), -1]
    elif form == 3:
        shape = shape[::-1]
    made = graph.add("Reshape", [name, graph.constant(np.array(shape, np.int64))])
    if made is not None and graph.chance(0.4):
        again = [0, -1] if graph.values[made[0]].ndim and graph.chance() else value.shape
        graph.add("Reshape", [*made, graph.constant(np.array(again, np.int64))])


def _axes(graph):
    """Add Unsqueeze or Squeeze, and sometimes another one."""
    name = graph.any_value()
    for _ in range(int(graph.random.integers(1, 3))):
        if name is None:
            return
        value = graph.values[name]
        rank, kind = value.ndim, graph.pick(["Unsqueeze", "Unsqueeze", "Squeeze"])
        if kind == "Unsqueeze":
            count = int(graph.random.integers(0 if graph.opset > 12 else 1, 3))
            whole = rank + count
            axes = sorted(graph.random.choice(whole, count, replace=False).tolist())
            axes = [
                axis - whole if graph.opset > 12 and graph.chance(0.3) else axis for axis in axes
            ]
        else:
            axes = [axis for axis in range(rank) if value.shape[axis] == 1 and graph.chance()]
        if graph.opset >= 13:
            made = graph.add(kind, [name, graph.constant(np.array(axes, np.int64))])
        else:
            made = graph.add(kind, [name], axes=axes) if axes else None
        name = made[0] if made else None


def _pad(graph):
    name = graph.any_value("f")
    if name is None:
        return
    value = graph.values[name]
    axes = list(range(value.ndim))
    inputs = []
    if graph.opset >= 18 and graph.chance():
        axes = [axis for axis in axes if graph.chance()]
        inputs = [graph.constant(np.array(axes, np.int64))]
    most = 1 if graph.chance(0.3) else 3
    pads = graph.random.integers(0, most, 2 * len(axes))
    fill = graph.pick(["", graph.constant(np.array(graph.pick([0.0, 0.0, 1.5]), value.dtype))])
    pads_name = graph.constant(pads.astype(np.int64))
    made = graph.add(
        "Pad", [name, pads_name, fill, *inputs] if fill or inputs else [name, pads_name]
    )
    if made is not None and graph.is_rounded and graph.chance():
        random_layers.convolve(graph, made[0])


def _slice(graph):
    name = graph.any_value()
    if name is None or graph.values[name].ndim == 0:
        return
    axis = int(graph.random.integers(graph.values[name].ndim))
    size = graph.values[name].shape[axis]
    start, end, step = graph.pick(
        [
            (0, size, 1),
            (0, 2**40, 1),
            (-size, size, 1),
            (1, size, 1),
            (0, size, 2),
            (-1, -(2**40), -1),
        ]
    )
    graph.add(
        "Slice",
        [name, *(graph.constant(np.array([n], np.int64)) for n in (start, end, axis, step))],
    )


def _concat(graph):
    name = graph.any_value(rank=None)
    if name is None or graph.values[name].ndim == 0:
        return
    value = graph.values[name]
    axis = int(graph.random.integers(value.ndim))
    shape = list(value.shape)
    shape[axis] = graph.pick([0, 0, 1])
    other = graph.constant(graph.numbers(shape, value.dtype))
    made = graph.add(
        "Concat", graph.pick([[name], [name, other], [other, name], [name, name]]), axis=axis
    )
    if made is not None and graph.chance(0.3):
        graph.add("Concat", [*made, other], axis=axis)


def _same_shape(graph):
    name = graph.any_value()
    if name is None:
        return
    value = graph.values[name]
    kind = graph.pick(["Expand", "Tile", "Flatten", "Split"])
    if kind == "Expand":
        graph.add(
            kind,
            [
                name,
                graph.constant(
                    np.array(value.shape if graph.chance() else [2, *value.shape], np.int64)
                ),
            ],
        )
    elif kind == "Tile":
        graph.add(
            kind, [name, graph.constant(np.full(value.ndim, graph.pick([1, 1, 2]), np.int64))]
        )
    elif kind == "Flatten":
        graph.add(kind, [name], axis=int(graph.random.integers(value.ndim + 1)))
    elif value.ndim:
        attributes = {"num_outputs": 1} if graph.opset >= 18 else {}
        graph.add(kind, [name], axis=0, **attributes)


def _clip(graph):
    name = graph.any_value("f")
    if name is None:
        return
    bound = graph.constant(np.array(graph.pick([0.0, 0.0, 1.0]), graph.values[name].dtype))
    other = graph.constant(np.array(graph.pick([0.0, 2.0]), graph.values[name].dtype))
    first = graph.add("Clip", graph.pick([[name, bound], [name, bound, ""], [name, "", bound]]))
    second = graph.add("Clip", graph.pick([[name, "", bound], [name, "", other], [name, bound]]))
    if first and second:
        graph.add(graph.pick(["Sub", "Add"]), [*first, *second])


def _twice(graph):
    """Compute the same once more, under another name."""
    pure = [node for node in graph.nodes if node.op_type != "Constant"]
    if pure:
        node = graph.pick(pure)
        again = onnx.NodeProto.FromString(node.SerializeToString())
        values = [graph.values[name] for name in node.output]
        again.name = f"n{len(graph.nodes)}"
        again.output[:] = [f"v{len(graph.nodes)}_{index}" for index in range(len(values))]
        graph.nodes.append(again)
        graph.values.update(zip(again.output, values, strict=True))
        if values[0].dtype.kind in "fi":
            graph.add(graph.pick(["Sub", "Add", "Mul"]), [node.output[0], again.output[0]])


def _shape(graph):
    """Reshape by what is computed of a shape."""
    name = graph.any_value()
    if name is None or graph.values[name].ndim < 2:
        return
    shape = graph.add("Shape", [name])
    if shape is None:
        return
    first = graph.add("Gather", [*shape, graph.constant(np.array([0], np.int64))])
    if first is not None:
        rest = graph.constant(np.array([-1], np.int64))
        target = graph.add("Concat", [*first, rest], axis=0)
        if target is not None:
            graph.add("Reshape", [name, *target])


def _of_constants(graph):
    dtype = np.float64 if graph.is_rounded else np.float32
    one = graph.constant(graph.numbers([1, 4, 1, 1][: int(graph.random.integers(5))], dtype))
    two = graph.constant(graph.numbers([], dtype))
    made = graph.add(graph.pick(["Add", "Mul", "Div", "Pow", "Max"]), [one, two])
    name = graph.any_value("f")
    if made is not None and name is not None and graph.values[name].dtype == dtype:
        graph.add(graph.pick(["Add", "Mul"]), [name, *made])


EXACT = (
    _arithmetic, _arithmetic, _arithmetic, _pair, _alone, _dropout, _transpose, _reshape, _axes,
    _axes, _pad, _slice, _concat, _same_shape, _clip, _twice, _shape, _of_constants,
)  # fmt: skip
EDGY = (_unary, _unary, _cast, _cast, _cast)
