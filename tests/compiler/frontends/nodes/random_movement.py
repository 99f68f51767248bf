"""Seeded random ONNX nodes that move, choose and put together elements."""

from typing import Any, Final

import numpy as np

from tests.compiler.frontends.nodes.random_nodes import (
    ANY,
    LARGEST,
    SMALLEST,
    Draw,
    Generator,
    Node,
    broadcast,
    chosen,
)

FAR: Final = (LARGEST, SMALLEST, SMALLEST + 1, 2**31 - 1, -(2**31), 100, -100)


def slice_(draw: Draw, op: str) -> Node:
    """Slice by ends far outside, steps back, axes from the end, in each of its forms."""
    shape = draw.shape(1, 3)
    data = draw.array(shape, draw.pick(*ANY))
    axes = draw.axes(len(shape), 1)
    count = len(axes)
    far = [draw.pick(*FAR, *range(-6, 7)) for _ in range(2 * count)]
    starts, ends = far[:count], far[count:]
    opset = draw.pick(9, 10, 11, 13)
    if opset == 9:
        attributes = {"starts": starts, "ends": ends, "axes": axes}
        if draw.flip(0.3):
            attributes |= {"axes": list(range(count))}
        return Node(op, opset, {"x": data}, attributes=attributes)
    steps = [draw.pick(1, 1, 2, -1, -1, -2, 7, -7, LARGEST, -LARGEST) for _ in axes]
    # onnxruntime takes the largest int32 for the beginning where steps lead back
    ends = [
        6 if step < 0 and end == 2**31 - 1 else end for end, step in zip(ends, steps, strict=True)
    ]
    stored = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    if draw.flip(0.3):
        del stored["steps"]
        if draw.flip():
            del stored["axes"]
    small = draw.flip(0.2) and all(abs(n) < 2**31 for ns in stored.values() for n in ns)
    kind = np.int32 if small else np.int64
    return Node(op, opset, {"x": data}, {name: np.array(ns, kind) for name, ns in stored.items()})


def squeeze(draw: Draw, op: str) -> Node:
    """Squeeze and Unsqueeze, with axes as an attribute or as an input."""
    shape, opset = draw.shape(0, 3), draw.pick(11, 13)
    if op == "Squeeze":
        rank = len(shape)
        axes = draw.axes(rank)
        for axis in axes:
            shape[axis] = 1
        absent = not axes
    else:
        count = draw.number(0, 2)
        axes, absent = draw.axes(len(shape) + count)[:count], False
        rank = len(shape) + len(axes)
        axes = list(dict.fromkeys(axis % rank for axis in axes)) if rank else []
    data = {"x": draw.array(shape, draw.pick(*ANY))}
    if opset == 11 and (axes or absent):
        return Node(op, opset, data, attributes={} if absent else {"axes": axes})
    return Node(op, opset, data, {} if absent else {"axes": draw.ints(*axes)})


def split(draw: Draw, op: str) -> Node:
    """Split into parts of which some may have no elements."""
    shape = draw.shape(1, 3, 7)
    axis, opset = draw.axis(len(shape)), draw.pick(11, 13, 18)
    data, size = {"x": draw.array(shape, draw.pick(*ANY))}, shape[axis]
    cuts = sorted(draw.number(0, size) for _ in range(draw.number(0, 3)))
    parts = [end - start for start, end in zip([0, *cuts], [*cuts, size], strict=True)]
    attributes: dict[str, Any] = {"axis": axis}
    count = len(parts)
    if opset == 18 and draw.flip():
        count = draw.number(1, size)
        if -(-size // count) * (count - 1) >= size:
            count = 1
        return Node(op, opset, data, attributes=attributes | {"num_outputs": count}, outputs=count)
    if opset == 11:
        return Node(op, opset, data, attributes=attributes | {"split": parts}, outputs=count)
    return Node(op, opset, data, {"parts": draw.ints(*parts)}, attributes, outputs=count)


def concat(draw: Draw, op: str) -> Node:
    """Concat of any axis, one part of which is a constant and may be empty."""
    shape, dtype = draw.shape(1, 3), draw.pick(*ANY)
    axis = draw.axis(len(shape))
    parts = []
    for _ in range(draw.number(1, 4)):
        shape[axis] = draw.number(1, 4)
        parts.append(draw.array(shape, dtype))
    names = [f"x{at}" for at in range(len(parts))]
    stored = {}
    if len(parts) > 1 and draw.flip(0.4):
        shape[axis] = draw.number(0, 2)
        stored = {names[-1]: draw.array(shape, dtype)}
    given = {name: part for name, part in zip(names, parts, strict=True) if name not in stored}
    return Node(op, draw.pick(11, 13), given, stored, {"axis": axis}, tuple(names))


def pad(draw: Draw, op: str) -> Node:
    """Pad in each mode, elements taken away among it."""
    shape, mode = draw.shape(1, 4), draw.pick("constant", "reflect", "edge", "wrap")
    opset = 19 if mode == "wrap" else draw.pick(10, 11, 13, 18, 19)
    axes = draw.axes(len(shape), 1) if opset >= 18 and draw.flip() else list(range(len(shape)))
    least = -1 if draw.flip(0.4) else 0
    pads = []
    for axis in axes * 2:
        most = shape[axis] - 1 if mode == "reflect" else 3
        pads.append(draw.number(least if shape[axis] > 2 else 0, max(most, 0)))
    if mode == "reflect":
        half = len(axes)
        for at, axis in enumerate(axes):
            kept = shape[axis] + min(pads[at], 0) + min(pads[half + at], 0)
            for place in (at, half + at):
                pads[place] = min(pads[place], kept - 1)
    dtype = (
        "float32" if opset == 10 else draw.pick(*(ANY if opset >= 13 else ("float32", "float64")))
    )
    data = {"x": draw.array(shape, dtype)}
    if opset == 10:
        number = {"value": 1.5} if draw.flip() else {}
        return Node(op, opset, data, attributes={"mode": mode, "pads": pads} | number)
    value = {"value": draw.array([], dtype)} if draw.flip() else {}
    named = len(axes) < len(shape) or axes != list(range(len(shape)))
    stored = {"pads": draw.ints(*pads)} | value | ({"axes": draw.ints(*axes)} if named else {})
    order = ("x", "pads", "value" if value else "", "axes") if named else ()
    return Node(op, opset, data, stored, {"mode": mode}, order)


def gather(draw: Draw, op: str) -> Node:
    """Gather, GatherElements and GatherND by places from either end."""
    shape = draw.shape(1, 3)
    rank, data = len(shape), draw.array(shape, draw.pick(*ANY))
    opset, attributes = 13, {}
    if op == "GatherND":
        depth = draw.number(1, rank)
        rows = [draw.number(1, 3) for _ in range(draw.number(1, 2))]
        columns = [
            np.array([draw.number(-size, size - 1) for _ in range(int(np.prod(rows)))])
            for size in shape[:depth]
        ]
        places = np.stack(columns, -1).reshape(*rows, depth)
    else:
        axis = draw.axis(rank)
        attributes, size = {"axis": axis}, shape[axis]
        wanted = draw.shape(0, 2)
        if op == "GatherElements":
            wanted = [draw.number(1, extent) for extent in shape]
            wanted[axis] = draw.number(1, 4)
        flat = [draw.number(-size, size - 1) for _ in range(int(np.prod(wanted)))]
        places = np.array(flat).reshape(wanted)
    kind = np.int64 if op == "GatherND" or draw.flip() else np.int32
    stored = {"i": places.astype(kind)} if draw.flip() else {}
    return Node(
        op, opset, {"x": data} | ({} if stored else {"i": places.astype(kind)}), stored, attributes
    )


def scatter(draw: Draw, op: str) -> Node:
    """ScatterElements at different places, so that their order does not matter."""
    shape = draw.shape(1, 3)
    axis, dtype = draw.axis(len(shape)), draw.pick(*ANY)
    smaller = [draw.number(1, size) for size in shape]
    places = np.argsort(np.random.default_rng(draw.number(0, 999)).random(smaller), axis=axis)
    if draw.flip(0.3):
        places -= shape[axis]
    given = {"x": draw.array(shape, dtype), "i": places, "u": draw.array(smaller, dtype)}
    number = dtype in {"float32", "float64", "int32", "int64"}
    kinds = ["none", "add", "mul", "max", "min"] if number else ["none"]
    attributes = {"axis": axis} | chosen(draw, {"reduction": kinds})
    return Node(op, 18, given, attributes=attributes)


def topk(draw: Draw, op: str) -> Node:
    """TopK of numbers that differ, of some or none of them."""
    shape, opset = draw.shape(1, 3), draw.pick(10, 11)
    axis = draw.axis(len(shape))
    dtype = "float32" if opset == 10 else draw.pick("float32", "float64", "int64", "int32", "uint8")
    count = int(np.prod(shape))
    data = np.array(draw.order(count)).reshape(shape).astype(dtype)
    attributes: dict[str, Any] = {"axis": axis}
    if opset == 11:
        attributes |= chosen(draw, {"largest": [0, 1], "sorted": [0, 1]})
    k = draw.ints(draw.number(0, shape[axis]))
    return Node(op, opset, {"x": data}, {"k": k}, attributes, outputs=2)


def trilu(draw: Draw, op: str) -> Node:
    """Trilu of a diagonal that may be far away."""
    data = draw.array(draw.shape(2, 4), draw.pick(*ANY))
    k = np.array(draw.pick(*FAR, *range(-6, 7)), np.int64)
    stored = {"k": k} if draw.flip(0.8) else {}
    return Node(op, 14, {"x": data}, stored, chosen(draw, {"upper": [0, 1]}))


def reshape(draw: Draw, op: str) -> Node:
    """Reshape with zeros and a size that follows from the others."""
    shape, opset = draw.shape(0, 4), draw.pick(13, 14)
    data = {"x": draw.array(shape, draw.pick(*ANY))}
    wanted = [*shape, *[1] * draw.number(0, 2)]
    if draw.flip():
        wanted = [wanted[at] for at in draw.order(len(wanted))]
    if wanted and draw.flip():
        wanted[draw.number(0, len(wanted) - 1)] = -1
    for at in range(min(len(shape), len(wanted))):
        if wanted[at] == shape[at] and draw.flip(0.3):
            wanted[at] = 0
    return Node(op, opset, data, {"shape": draw.ints(*wanted)})


def expand(draw: Draw, op: str) -> Node:
    """Expand, Tile and ConstantOfShape."""
    data, other = broadcast(draw)
    if op == "Tile":
        other = [draw.number(0 if draw.flip(0.2) else 1, 3) for _ in data]
    return Node(op, 13, {"x": draw.array(data, draw.pick(*ANY))}, {"shape": draw.ints(*other)})


def where(draw: Draw, op: str) -> Node:
    """Where of three shapes."""
    first, second = broadcast(draw)
    dtype = draw.pick(*ANY)
    given = {"c": draw.array(first, "bool"), "x": draw.array(second, dtype)}
    return Node(op, draw.pick(9, 16), given | {"z": draw.array(draw.pick(second, []), dtype)})


def one_hot(draw: Draw, op: str) -> Node:
    """OneHot, places outside of the depth among it."""
    shape, depth = draw.shape(1, 3), draw.number(1, 5)
    places = np.array(draw.array(shape, draw.pick("int64", "int32", "float32")))
    values = draw.array([2], draw.pick("float32", "int64", "int32"))
    attributes = {"axis": draw.axis(len(shape) + 1)} if draw.flip() else {}
    places = np.rint(places).astype(places.dtype)
    return Node(op, draw.pick(9, 11), {"i": places},
                {"depth": np.array(depth), "values": values}, attributes)  # fmt: skip


def running(draw: Draw, op: str) -> Node:
    """CumSum either way."""
    shape = draw.shape(1, 3)
    data = draw.array(shape, draw.pick("float32", "float64", "int32", "int64"))
    attributes = chosen(draw, {"exclusive": [0, 1], "reverse": [0, 1]})
    return Node(
        op, draw.pick(11, 14), {"x": data}, {"axis": np.array(draw.axis(len(shape)))}, attributes
    )


def arranged(draw: Draw, op: str) -> Node:
    """Operators that only arrange: Transpose, Flatten, Shape, Size, EyeLike, blocks of depth."""
    dtype, opset = draw.pick(*ANY), draw.pick(13, 15)
    if op in {"DepthToSpace", "SpaceToDepth"}:
        block = draw.number(1, 3)
        deep = op == "DepthToSpace"
        shape = [draw.number(1, 2), draw.number(1, 2) * (block**2 if deep else 1),
                 *(draw.number(1, 2) * (1 if deep else block) for _ in range(2))]  # fmt: skip
        modes = chosen(draw, {"mode": ["DCR", "CRD"]}) if deep else {}
        return Node(
            op, 13, {"x": draw.array(shape, "float32")}, attributes={"blocksize": block} | modes
        )
    shape = draw.shape(2, 2) if op == "EyeLike" else draw.shape(0, 4)
    attributes: dict[str, Any] = {}
    if op == "Transpose" and draw.flip(0.8):
        attributes = {"perm": draw.order(len(shape))} if shape else {}
    elif op == "Flatten":
        named = not shape or draw.flip(0.8)
        attributes = {"axis": draw.number(-len(shape), len(shape))} if named else {}
    elif op == "Shape":
        opset = 15
        attributes = chosen(draw, {name: [*range(-5, 6), *FAR] for name in ("start", "end")})
    elif op == "EyeLike":
        dtype, attributes = "int32", chosen(draw, {"k": [-9, -1, 0, 1, 9], "dtype": [1, 7, 11]})
    return Node(op, opset, {"x": draw.array(shape, dtype)}, attributes=attributes)


MOVEMENT: Final[dict[str, Generator]] = {
    "Slice": slice_,
    **dict.fromkeys(("Squeeze", "Unsqueeze"), squeeze),
    "Split": split,
    "Concat": concat,
    "Pad": pad,
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), gather),
    "ScatterElements": scatter,
    "TopK": topk,
    "Trilu": trilu,
    "Reshape": reshape,
    **dict.fromkeys(("Expand", "Tile"), expand),
    "Where": where,
    "OneHot": one_hot,
    "CumSum": running,
    **dict.fromkeys(
        ("Transpose", "Flatten", "Shape", "Size", "EyeLike", "DepthToSpace", "SpaceToDepth"),
        arranged,
    ),
}
"""What draws a node of each operator."""
