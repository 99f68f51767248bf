"""Seeded random ONNX nodes of layers: pooling, convolution, normalization, products, resizing."""

from typing import Any, Final

import numpy as np

from tests.compiler.frontends.nodes.random_nodes import Draw, Generator, Node, chosen


def image(draw: Draw, space: int, channels: int | None = None) -> list[int]:
    """Return the shape of a batch of images."""
    return [
        draw.number(1, 2),
        channels or draw.number(1, 4),
        *(draw.number(3, 9) for _ in range(space)),
    ]


def window(draw: Draw, sizes: list[int], *, dilated: bool = True) -> dict[str, Any]:
    """Return the attributes of a window that fits somewhere."""
    space = len(sizes)
    kernel = [draw.number(1, min(3, size)) for size in sizes]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if draw.flip(0.6):
        attributes["strides"] = [draw.number(1, 3) for _ in sizes]
    if dilated and draw.flip(0.3):
        attributes["dilations"] = [
            draw.number(1, 2) if (kernel[at] - 1) * 2 < sizes[at] else 1 for at in range(space)
        ]
    if draw.flip(0.3) and "dilations" not in attributes:  # the references differ, and are wrong
        attributes["auto_pad"] = draw.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    elif draw.flip(0.6):
        attributes["pads"] = [
            draw.number(0, kernel[at] - 1) for at in (*range(space), *range(space))
        ]
    return attributes


def pool(draw: Draw, op: str) -> Node:
    """Pooling with windows that hang over, gaps, and padding of each kind."""
    shape = image(draw, draw.number(1, 3))
    opset = draw.pick(10, 11, 18, 19, 22)
    if op == "LpPool":
        opset = draw.pick(11, 18, 22)
    dilated = (
        op == "MaxPool" or (op == "AveragePool" and opset >= 19) or (op == "LpPool" and opset >= 18)
    )
    attributes = window(draw, shape[2:], dilated=dilated)
    if attributes.get("auto_pad", "").startswith("SAME") and "strides" in attributes:
        pairs = zip(attributes["strides"], attributes["kernel_shape"], strict=True)
        attributes["strides"] = [min(pair) for pair in pairs]  # what would be cropped differs
    if (op != "LpPool" or opset >= 18) and attributes.get("auto_pad", "NOTSET") == "NOTSET":
        attributes |= chosen(draw, {"ceil_mode": [0, 1]})
    if op == "AveragePool":
        attributes |= chosen(draw, {"count_include_pad": [0, 1]})
    if op == "LpPool":
        attributes |= chosen(draw, {"p": [1, 2, 3]})
    dtype = draw.pick("float32", "int8", "uint8") if op == "MaxPool" and opset > 11 else "float32"
    outputs = 2 if op == "MaxPool" and draw.flip(0.2) else 1
    return Node(op, opset, {"x": draw.array(shape, dtype)}, attributes=attributes, outputs=outputs)


def whole_pool(draw: Draw, op: str) -> Node:
    """Global pooling."""
    data = draw.array(image(draw, draw.number(1, 3)), "float32")
    attributes = chosen(draw, {"p": [1, 2, 3]}) if op == "GlobalLpPool" else {}
    return Node(op, 13, {"x": data}, attributes=attributes)


def convolution(draw: Draw, op: str) -> Node:
    """Conv and ConvTranspose with groups, gaps and padding of each kind."""
    space, groups = draw.number(1, 3), draw.pick(1, 1, 2, 3)
    each, out = draw.number(1, 2), draw.number(1, 2)
    shape = image(draw, space, groups * each)
    attributes = window(draw, shape[2:])
    kernel = attributes["kernel_shape"]
    if draw.flip():
        del attributes["kernel_shape"]
    if groups > 1:
        attributes["group"] = groups
    turned = op == "ConvTranspose"
    weight = [groups * each, out, *kernel] if turned else [groups * out, each, *kernel]
    if turned and draw.flip(0.3):
        steps = [
            max(*pair)
            for pair in zip(attributes.get("strides", [1] * space),
                            attributes.get("dilations", [1] * space), strict=True)
        ]  # fmt: skip
        attributes["output_padding"] = [draw.number(0, step - 1) for step in steps]
    stored = {"w": draw.array(weight, "float32", 1.0)}
    if draw.flip():
        stored["b"] = draw.array([groups * out], "float32")
    return Node(op, draw.pick(11, 22), {"x": draw.array(shape, "float32")}, stored, attributes)


def normalization(draw: Draw, op: str) -> Node:
    """Normalizations with parameters of each shape that ONNX lets them have."""
    dtype = draw.pick("float32", "float32", "float64", "float16")
    if op in {"LayerNormalization", "RMSNormalization"}:
        shape = draw.shape(1, 4)
        axis = draw.axis(len(shape))
        opset = 17 if op == "LayerNormalization" else 23
        stored = {}
        for name in ("s", "b") if opset == 17 and draw.flip(0.7) else ("s",):
            wanted = shape[axis:]
            if draw.flip(0.4):
                wanted = [
                    1 if draw.flip(0.3) else size for size in wanted[draw.number(0, len(wanted)) :]
                ]
            stored[name] = draw.array(wanted, dtype)
        given = {"x": draw.array(shape, dtype)}
        if draw.flip(0.2):
            given, stored = given | stored, {}
        attributes = chosen(draw, {"axis": [axis], "epsilon": [1e-5, 1e-3]}) | {"axis": axis}
        return Node(op, opset, given, stored, attributes)
    if op == "LpNormalization":
        shape = draw.shape(1, 3)
        names: dict[str, Any] = {"axis": [draw.axis(len(shape))], "p": [1, 2]}
        return Node(op, 13, {"x": draw.array(shape, "float32")}, attributes=chosen(draw, names))
    if op == "LRN":
        names = {"alpha": [1e-4, 0.5], "beta": [0.75, 0.5], "bias": [1.0, 2.0]}
        data = draw.array(image(draw, 2), "float32")
        return Node(
            op, 13, {"x": data}, attributes={"size": draw.pick(1, 3, 5)} | chosen(draw, names)
        )
    groups = draw.number(1, 3)
    shape = image(draw, draw.number(1, 3), groups * draw.number(1, 3))
    channels = shape[1]
    attributes = chosen(draw, {"epsilon": [1e-5, 1e-2]})
    opset = draw.pick(13, 15)
    if op == "GroupNormalization":
        opset = draw.pick(18, 21)
        channels = groups if opset == 18 else channels
        attributes |= {"num_groups": groups}
    dtype = "float32" if op == "InstanceNormalization" else dtype
    stored = {name: draw.array([channels], dtype) for name in ("s", "b")}
    if op == "BatchNormalization":
        stored |= {
            "m": draw.array([channels], dtype),
            "v": np.abs(draw.array([channels], dtype)) + 1,
        }
        stored["v"] = stored["v"].astype(dtype)
    return Node(op, opset, {"x": draw.array(shape, dtype)}, stored, attributes)


def softmax(draw: Draw, op: str) -> Node:
    """Softmax and its like, over one axis or, before opset 13, over all that follow."""
    shape = draw.shape(1, 4)
    dtype = "float32" if op == "Hardmax" else draw.pick("float32", "float64")
    data = draw.array(shape, dtype, draw.pick(3.0, 1e4))
    opset, attributes = draw.pick(11, 13), chosen(draw, {"axis": [draw.axis(len(shape))]})
    if opset == 11 and len(shape) == 1:  # the default, 1, is no axis of it
        attributes = {"axis": 0}
    return Node(op, opset, {"x": data}, attributes=attributes)


def product(draw: Draw, op: str) -> Node:
    """MatMul of any ranks."""
    dtype, depth = (
        draw.pick("float32", "float32", "float64", "int32", "int64", "uint32"),
        draw.number(1, 5),
    )
    batch = draw.shape(0, 2)
    first = [*(1 if draw.flip(0.2) else size for size in batch), draw.number(1, 4), depth]
    second = [*batch[draw.number(0, len(batch)) :], depth, draw.number(1, 4)]
    first = [depth] if draw.flip(0.2) else first
    second = [depth] if draw.flip(0.2) else second
    one, other = draw.array(first, dtype), draw.array(second, dtype)
    stored = {"z": other} if draw.flip() else {}
    return Node(op, 13, {"x": one} | ({} if stored else {"z": other}), stored)


def gemm(draw: Draw, op: str) -> Node:
    """Gemm, either side transposed, with a third operand of any shape that fits."""
    rows, depth, columns = (draw.number(1, 5) for _ in range(3))
    attributes = chosen(
        draw, {"transA": [0, 1], "transB": [0, 1], "alpha": [0.5, 2.0], "beta": [0.0, 0.5]}
    )
    one = [depth, rows] if attributes.get("transA") else [rows, depth]
    other = [columns, depth] if attributes.get("transB") else [depth, columns]
    stored = {"z": draw.array(other, "float32")}
    if draw.flip(0.7):
        third = draw.pick([rows, columns], [columns], [1, columns], [rows, 1], [1], [])
        stored["c"] = draw.array(third, "float32")
    return Node(op, 13, {"x": draw.array(one, "float32")}, stored, attributes)


def resize(draw: Draw, op: str) -> Node:
    """Resize and Upsample by scales or sizes, in each of their forms."""
    shape = image(draw, 2)
    data = {"x": draw.array(shape, "float32")}
    scales = [1.0, 1.0, *(draw.pick(0.5, 1.0, 2.0, 3.0, 1.5, 0.7) for _ in range(2))]
    if op == "Upsample":
        up = [1.0, 1.0, *(draw.pick(1.0, 2.0, 3.0) for _ in range(2))]
        return Node(
            op,
            9,
            data,
            {"scales": np.array(up, "float32")},
            chosen(draw, {"mode": ["nearest", "linear"]}),
        )
    opset = draw.pick(10, 11, 13, 18, 19)
    if opset == 10:
        return Node(
            op,
            10,
            data,
            {"scales": np.array(scales, "float32")},
            chosen(draw, {"mode": ["nearest", "linear"]}),
        )
    attributes = chosen(draw, {
        "mode": ["nearest", "linear", "cubic"],
        "nearest_mode": ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
        "coordinate_transformation_mode": ["half_pixel", "asymmetric", "pytorch_half_pixel"],
    })  # fmt: skip
    sizes = [*shape[:2], *(draw.number(1, 12) for _ in range(2))]
    empty = opset < 13
    order: tuple[str, ...]
    none = {"e": np.zeros(0, "float32")} if empty else {}
    if draw.flip():
        order = ("x", "e" if empty else "", "scales")
        return Node(
            op, opset, data, none | {"scales": np.array(scales, "float32")}, attributes, order
        )
    order = ("x", "e" if empty else "", "e" if empty else "", "sizes")
    return Node(op, opset, data, none | {"sizes": draw.ints(*sizes)}, attributes, order)


LAYERS: Final[dict[str, Generator]] = {
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), whole_pool),
    **dict.fromkeys(("Conv", "ConvTranspose"), convolution),
    **{
        f"{op}Normalization": normalization
        for op in ("Batch", "Instance", "Layer", "RMS", "Group", "Lp")
    },
    "LRN": normalization,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), softmax),
    "MatMul": product,
    "Gemm": gemm,
    **dict.fromkeys(("Resize", "Upsample"), resize),
}
"""What draws a node of each operator."""
