"""Make a model shaped like Mask R-CNN: python pipelines/models/make_mask_rcnn.py [FOLDER].

He et al., 2017, arXiv:1703.06870, small: a backbone, a pyramid of three levels, proposals of which
NonMaxSuppression leaves a number that only the image decides, two large dense layers over them,
NonMaxSuppression by class, and masks of what is left. The file has no weights, as those in the
onnx package have none: ConstantOfShape stands for each, and the pipeline draws them.
"""

# ruff: noqa: INP001, PLR0913, PLR0917, E501  a script

import sys
from pathlib import Path

import numpy as np
from make_models import Graph
from onnx import numpy_helper

IMAGE, CLASSES, CHANNELS, HIDDEN = 256, 21, 128, 1024
LEVELS = {3: 8, 4: 16, 5: 32}
"""Pixels of the image that one pixel is, by level of the pyramid."""
SHAPES = ((0.7, 1.4), (1.0, 1.0), (1.4, 0.7))
"""Width and height of an anchor, in sides of a square that is four pixels of its level."""
BEFORE, PROPOSALS, PER_CLASS = 400, 100, 10
_POOLED, _MASK = 7, 14


class Network(Graph):
    """A graph without weights of its own."""

    def drawn(self, name: str, *shape: int) -> str:
        """Add a weight that the pipeline draws."""
        sizes = self.weight(f"{name}.shape", np.array(shape, np.int64))
        value = numpy_helper.from_array(np.array([0.02], np.float32))
        return self.op("ConstantOfShape", name, sizes, value=value)

    def number(self, name: str, value: float | list[int] | list[float]) -> str:
        """Add a number, or a list of them."""
        array = np.array(value)
        return self.weight(name, array.astype(np.float32) if array.dtype.kind == "f" else array)

    def conv(self, name: str, data: str, few: int, wide: int, side: int, stride: int = 1) -> str:
        """Add a convolution and Relu."""
        made = self.plain(name, data, few, wide, side, stride)
        return self.op("Relu", f"{name}.relu", made)

    def plain(self, name: str, data: str, few: int, wide: int, side: int, stride: int = 1) -> str:
        """Add a convolution."""
        weights = (
            self.drawn(f"{name}.weight", wide, few, side, side),
            self.drawn(f"{name}.bias", wide),
        )
        return self.op(
            "Conv", name, data, *weights, strides=[stride] * 2, pads=[side // 2] * 4,
            kernel_shape=[side] * 2,
        )  # fmt: skip

    def layer(self, name: str, data: str, few: int, wide: int) -> str:
        """Add a dense layer."""
        return self.op(
            "Gemm",
            name,
            data,
            self.drawn(f"{name}.weight", few, wide),
            self.drawn(f"{name}.bias", wide),
        )


def pyramid(graph: Network) -> dict[int, str]:
    """Add the backbone, and the pyramid over it (Lin et al., 2017, arXiv:1612.03144)."""
    data = graph.conv("stem", "image", 3, 32, 7, 2)
    data = graph.op("MaxPool", "pool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels, levels = 32, {}
    for level, wide, stride in ((2, 32, 1), (3, 64, 2), (4, 128, 2), (5, 256, 2)):
        short = graph.plain(f"stage{level}.short", data, channels, wide, 1, stride)
        data = graph.conv(f"stage{level}.first", data, channels, wide, 3, stride)
        data = graph.plain(f"stage{level}.second", data, wide, wide, 3)
        data = graph.op("Relu", f"stage{level}", graph.op("Add", f"stage{level}.sum", data, short))
        channels, levels[level] = wide, data
    graph.number("all", [])
    graph.number("twice", [1.0, 1.0, 2.0, 2.0])
    made: dict[int, str] = {}
    for level in reversed(LEVELS):
        side = graph.plain(f"side{level}", levels[level], 64 << level - 3, CHANNELS, 1)
        if level + 1 in made:
            upper = graph.op(
                "Resize", f"up{level}", made[level + 1], "empty", "twice", mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor",
            )  # fmt: skip
            side = graph.op("Add", f"both{level}", side, upper)
        made[level] = side
    return {
        level: graph.plain(f"level{level}", data, CHANNELS, CHANNELS, 3)
        for level, data in sorted(made.items())
    }


def anchors() -> np.ndarray:
    """Return middle, width and height of all anchors, level by level, row by row."""
    found = []
    for step in LEVELS.values():
        places = (np.arange(IMAGE // step) + 0.5) * step
        for y in places:
            for x in places:
                found += [(x, y, 4 * step * wide, 4 * step * high) for wide, high in SHAPES]
    return np.array(found, np.float32)


def proposals(graph: Network, levels: dict[int, str]) -> str:
    """Add the proposals: [found, 4], the best boxes that do not overlap much."""
    scores, moves = [], []
    for level, data in levels.items():
        hidden = graph.conv(f"rpn{level}", data, CHANNELS, CHANNELS, 3)
        for kind, count, into in (("score", 1, scores), ("move", 4, moves)):
            made = graph.plain(f"rpn{level}.{kind}", hidden, CHANNELS, count * len(SHAPES), 1)
            rows = graph.op("Transpose", f"rpn{level}.{kind}.rows", made, perm=[0, 2, 3, 1])
            shape = graph.number(f"rpn{level}.{kind}.flat", [-1, count])
            into.append(graph.op("Reshape", f"rpn{level}.{kind}.list", rows, shape))
    score = graph.op("Sigmoid", "rpn.shares", graph.op("Concat", "rpn.scores", *scores, axis=0))
    score = graph.op("Squeeze", "rpn.share", score, graph.number("one", [1]))
    most = graph.number("before", [BEFORE])
    graph.nodes.append(graph_node("TopK", "rpn.best", [score, most], ["rpn.top", "rpn.places"]))
    move = graph.op("Concat", "rpn.moves", *moves, axis=0)
    # whole numbers are no weights, so that nobody draws them
    graph.weight("anchors.eighths", np.round(8 * anchors()).astype(np.int64))
    eighths = graph.op("Cast", "anchors.parts", "anchors.eighths", to=1)
    around = graph.op("Mul", "anchors", eighths, graph.number("eighth", 0.125))
    chosen = [
        graph.op("Gather", f"rpn.{name}", data, "rpn.places", axis=0)
        for name, data in (("move", move), ("anchor", around))
    ]
    boxes = corners(graph, "rpn.box", *chosen, scale=0.1)
    kept = suppressed(graph, "proposals", boxes, "rpn.top", (PROPOSALS, 0.5, 0.0))
    return graph.op("Gather", "boxes", boxes, kept, axis=0)


def graph_node(kind: str, name: str, inputs: list[str], outputs: list[str], **attributes: int):  # noqa: ANN201  a protobuf
    """Return a node of several outputs."""
    from onnx import helper

    return helper.make_node(kind, inputs, outputs, name, **attributes)


def corners(graph: Network, name: str, moves: str, around: str, scale: float) -> str:
    """Add boxes [n, 4] of moves and of middle, width and height that they start from."""
    graph.weight(f"{name}.scale", np.float32(scale))
    graph.weight(f"{name}.halves", np.array([2, 2], np.int64))
    graph.weight(f"{name}.half", np.float32(0.5))
    moved = graph.op("Mul", f"{name}.step", moves, f"{name}.scale")
    parts = {}
    for data, of in ((moved, "move"), (around, "from")):
        parts[of] = [f"{name}.{of}.place", f"{name}.{of}.size"]
        node = graph_node("Split", f"{name}.{of}", [data, f"{name}.halves"], parts[of], axis=1)
        graph.nodes.append(node)
    (place, size), (old, wide) = parts["move"], parts["from"]
    middle = graph.op("Add", f"{name}.middle", old, graph.op("Mul", f"{name}.shift", place, wide))
    grown = graph.op("Mul", f"{name}.grown", graph.op("Exp", f"{name}.growth", size), wide)
    half = graph.op("Mul", f"{name}.reach", grown, f"{name}.half")
    least = graph.op("Sub", f"{name}.least", middle, half)
    most = graph.op("Add", f"{name}.most", middle, half)
    both = graph.op("Concat", f"{name}.both", least, most, axis=1)
    for bound, value in (("low", 0.0), ("high", float(IMAGE))):
        graph.weight(f"{name}.{bound}", np.float32(value))
    return graph.op("Clip", f"{name}.clipped", both, f"{name}.low", f"{name}.high")


def suppressed(
    graph: Network, name: str, boxes: str, scores: str, limits: tuple[int, float, float]
) -> str:
    """Add NonMaxSuppression of one class; return the places of the boxes that stay."""
    for part, number in zip(("count", "overlap", "least"), limits, strict=True):
        graph.number(f"{name}.{part}", [number])
    graph.number(f"{name}.first", [0])
    graph.number(f"{name}.fronts", [0, 1])
    given = [
        graph.op("Unsqueeze", f"{name}.boxes", boxes, f"{name}.first"),
        graph.op("Unsqueeze", f"{name}.scores", scores, f"{name}.fronts"),
    ]
    limit = [f"{name}.{part}" for part in ("count", "overlap", "least")]
    chosen = graph.op("NonMaxSuppression", name, *given, *limit)
    graph.weight(f"{name}.column", np.int64(2))
    return graph.op("Gather", f"{name}.places", chosen, f"{name}.column", axis=1)


def pooled(graph: Network, name: str, levels: dict[int, str], boxes: str, side: int) -> str:
    """Add RoiAlign of each box on the level of its size, with features [n, channels, side, side]."""
    graph.number(f"{name}.box.parts", [2, 2])
    ends = [f"{name}.box.least", f"{name}.box.most"]
    graph.nodes.append(
        graph_node("Split", f"{name}.box", [boxes, f"{name}.box.parts"], ends, axis=1)
    )
    size = graph.op("Sub", f"{name}.box.size", *reversed(ends))
    graph.number(f"{name}.axis", [1])
    area = graph.op("ReduceProd", f"{name}.box.area", size, axes=[1], keepdims=0)
    bounds = [0.0, (2.0 * 4 * LEVELS[3]) ** 2 / 2, (2.0 * 4 * LEVELS[4]) ** 2 / 2, 1e9]
    count = graph.op("Shape", f"{name}.count", area)
    graph.weight(f"{name}.few", np.array([CHANNELS, side, side], np.int64))
    shape = graph.op(
        "Concat",
        f"{name}.all",
        graph.op("Slice", f"{name}.rows", count, *first(graph, name)),
        f"{name}.few",
        axis=0,
    )
    zero = numpy_helper.from_array(np.array([0], np.float32))
    result = graph.op("ConstantOfShape", f"{name}.zeros", shape, value=zero)
    for at, (level, step) in enumerate(LEVELS.items()):
        part = f"{name}.level{level}"
        graph.weight(f"{part}.low", np.float32(bounds[at]))
        graph.weight(f"{part}.high", np.float32(bounds[at + 1]))
        inside = graph.op(
            "And", f"{part}.inside",
            graph.op("GreaterOrEqual", f"{part}.above", area, f"{part}.low"),
            graph.op("Less", f"{part}.below", area, f"{part}.high"),
        )  # fmt: skip
        found = graph.op(
            "Transpose", f"{part}.places", graph.op("NonZero", part, inside), perm=[1, 0]
        )
        rows = graph.op("Squeeze", f"{part}.rows", found, f"{name}.axis")
        chosen = graph.op("Gather", f"{part}.boxes", boxes, rows, axis=0)
        images = graph.op("Mul", f"{part}.images", rows, zeros(graph))
        seen = graph.op(
            "RoiAlign", f"{part}.seen", levels[level], chosen, images, output_height=side,
            output_width=side, sampling_ratio=2, spatial_scale=1.0 / step, mode="avg",
        )  # fmt: skip
        result = graph.op("ScatterND", f"{part}.into", result, found, seen)
    return result


def zeros(graph: Network) -> str:
    """Return the number 0."""
    if not any(tensor.name == "zero" for tensor in graph.weights):
        graph.weight("zero", np.int64(0))
    return "zero"


def first(graph: Network, name: str) -> list[str]:
    """Return where the first number of a shape begins and ends."""
    graph.number(f"{name}.from", [0])
    graph.number(f"{name}.to", [1])
    return [f"{name}.from", f"{name}.to"]


def mask_rcnn() -> bytes:
    """Return the model: boxes, their scores and classes, and a mask of each."""
    graph = Network(seed=21)
    graph.weight("empty", np.array([], np.float32))
    levels = pyramid(graph)
    boxes = proposals(graph, levels)
    seen = graph.op("Flatten", "seen", pooled(graph, "pooled", levels, boxes, _POOLED))
    hidden = graph.op(
        "Relu", "hidden1.relu", graph.layer("hidden1", seen, CHANNELS * _POOLED**2, HIDDEN)
    )
    hidden = graph.op("Relu", "hidden2.relu", graph.layer("hidden2", hidden, HIDDEN, HIDDEN))
    shares = graph.op("Softmax", "shares", graph.layer("classes", hidden, HIDDEN, CLASSES), axis=1)
    moves = graph.layer("moves", hidden, HIDDEN, 4)
    final = corners(graph, "final", moves, middles(graph, boxes), scale=0.1)
    turned = graph.op("Transpose", "shares.turned", shares, perm=[1, 0])
    for name, value in {
        "objects.from": [1],
        "objects.to": [CLASSES],
        "ax0": [0],
        "ax01": [0],
    }.items():
        graph.number(name, value)
    objects = graph.op("Slice", "objects", turned, "objects.from", "objects.to", "ax0")
    for name, value in {"most": [PER_CLASS], "overlap": [0.5], "least": [0.15]}.items():
        graph.number(name, value)
    chosen = graph.op(
        "NonMaxSuppression", "detections",
        graph.op("Unsqueeze", "final.boxes", final, "ax0"),
        graph.op("Unsqueeze", "final.scores", objects, "ax01"), "most", "overlap", "least",
    )  # fmt: skip
    for name, number in (("one.class", 1), ("two.box", 2)):
        graph.weight(name, np.int64(number))
    label = graph.op("Gather", "labels", chosen, "one.class", axis=1)
    place = graph.op("Gather", "detections.box", chosen, "two.box", axis=1)
    found = graph.op("Gather", "found", final, place, axis=0)
    graph.number("pair", [1, 2])
    both = graph.op("Gather", "detections.pair", chosen, "pair", axis=1)
    graph.op("GatherND", "scores", objects, both)
    graph.op("Identity", "corners", found)
    masks(graph, levels, found, label)
    outputs = {"corners": ["found", 4], "scores": ["found"], "masks": ["found", 28, 28]}
    return graph.file("mask_rcnn", {"image": [1, 3, IMAGE, IMAGE]}, outputs)


def middles(graph: Network, boxes: str) -> str:
    """Add middle, width and height of boxes."""
    graph.number("boxes.parts", [2, 2])
    ends = ["boxes.least", "boxes.most"]
    graph.nodes.append(graph_node("Split", "boxes.ends", [boxes, "boxes.parts"], ends, axis=1))
    graph.weight("boxes.half", np.float32(0.5))
    both = graph.op("Add", "boxes.sum", *ends)
    middle = graph.op("Mul", "boxes.middle", both, "boxes.half")
    return graph.op(
        "Concat", "boxes.around", middle, graph.op("Sub", "boxes.size", *reversed(ends)), axis=1
    )


def masks(graph: Network, levels: dict[int, str], boxes: str, label: str) -> None:
    """Add the mask of each box, of its own class."""
    data = pooled(graph, "masked", levels, boxes, _MASK)
    for index in range(2):
        data = graph.conv(f"mask{index}", data, CHANNELS, CHANNELS, 3)
    kernel = graph.drawn("mask.up.weight", CHANNELS, CHANNELS, 2, 2)
    data = graph.op("ConvTranspose", "mask.up", data, kernel, kernel_shape=[2, 2], strides=[2, 2])
    data = graph.plain(
        "mask.classes", graph.op("Relu", "mask.up.relu", data), CHANNELS, CLASSES - 1, 1
    )
    kind = graph.op("Unsqueeze", "mask.label", label, graph.number("mask.axis", [1]))
    own = graph.op("GatherND", "mask.own", data, kind, batch_dims=1)
    graph.op("Sigmoid", "masks", own)


def main(folder: Path) -> None:
    """Write the model into a folder."""
    (folder / "mask_rcnn.onnx").write_bytes(mask_rcnn())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
