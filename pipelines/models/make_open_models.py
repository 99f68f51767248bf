"""Make the models with open sizes: python pipelines/models/make_open_models.py [FOLDER].

The same bytes on every machine, as those of make_models.py, which is beside this file.
"""

# ruff: noqa: INP001, PLR0913  a script

import sys
from pathlib import Path

import numpy as np
from make_models import Graph

_LINE, _LETTERS, _SEEN = 32, 40, 64


def finder() -> bytes:
    """Return a finder of text in images: a pyramid of two levels (Lin et al., 2017), joined."""
    graph = Graph(seed=11)
    image = _conv(graph, "stem", "input", (3, 16, 3), 2)
    fine = _conv(graph, "fine", image, (16, 24, 3), 2)
    coarse = _conv(graph, "coarse", fine, (24, 48, 3), 2)
    shares = graph.op("GlobalAveragePool", "all", coarse)
    weighed = graph.op("Mul", "weighed", coarse, graph.op("HardSigmoid", "shares", shares))
    below = _conv(graph, "below", weighed, (48, 24, 1), 1)
    graph.weight("whole", np.array([], np.float32))
    graph.weight("twice", np.array([1, 1, 2, 2], np.float32))
    nearest = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    upper = graph.op("Resize", "upper", below, "whole", "twice", **nearest)
    both = graph.op("Concat", "both", upper, fine, axis=1)
    joined = _conv(graph, "joined", both, (48, 24, 3), 1)
    kernel = graph.weight("finer.weight", graph.numbers((24, 8, 2, 2)) * np.float32(0.2 / 127))
    finer = graph.op("ConvTranspose", "finer", joined, kernel, kernel_shape=[2, 2], strides=[2, 2])
    score = _conv(graph, "score", finer, (8, 1, 1), 1, relu=False)
    half = graph.op("Resize", "half", score, "whole", "twice", mode="linear")
    graph.op("Sigmoid", "output", half)
    return graph.model("finder", [1, 3, "height", "width"], [1, 1, "height", "width"])


def recognizer() -> bytes:
    """Return a recognizer of lines of text (Shi et al., 2015): convolutions, then a GRU."""
    graph = Graph(seed=12)
    data, channels = "input", 3
    for index, (wide, pooled) in enumerate([(16, [2, 2]), (32, [2, 2]), (_SEEN, [8, 1])]):
        data = _conv(graph, f"conv{index}", data, (channels, wide, 3), 1)
        data = graph.op("MaxPool", f"pool{index}", data, kernel_shape=pooled, strides=pooled)
        channels = wide
    graph.weight("height", np.array([2], np.int64))
    columns = graph.op("Squeeze", "columns", data, "height")
    steps = graph.op("Transpose", "steps", columns, perm=(2, 0, 1))
    weights = [
        graph.weight(f"gru.{name}", graph.numbers(shape) * np.float32(np.sqrt(3 / _SEEN) / 127))
        for name, shape in {
            "input": (2, 3 * _LINE, _SEEN),
            "recurrent": (2, 3 * _LINE, _LINE),
        }.items()
    ]
    states = graph.op(
        "GRU",
        "gru",
        steps,
        *weights,
        hidden_size=_LINE,
        direction="bidirectional",
        linear_before_reset=1,
    )
    turned = graph.op("Transpose", "turned", states, perm=(2, 0, 1, 3))
    graph.weight("joined", np.array([0, 0, 2 * _LINE], np.int64))
    both = graph.op("Reshape", "both", turned, "joined")
    graph.op("Softmax", "output", graph.dense("letters", both, 2 * _LINE, _LETTERS), axis=-1)
    return graph.model("recognizer", ["batch", 3, 32, "width"], ["batch", "letters", _LETTERS])


def _conv(
    graph: Graph,
    name: str,
    data: str,
    sizes: tuple[int, int, int],
    stride: int,
    *,
    relu: bool = True,
) -> str:
    """Add a convolution of `sizes` channels in, channels out, and side."""
    few, wide, side = sizes
    step = np.float32(np.sqrt(6 / (few * side * side)) / 127)
    kernel = graph.weight(f"{name}.weight", graph.numbers((wide, few, side, side)) * step)
    bias = graph.vector(f"{name}.bias", wide)
    made = graph.op(
        "Conv", f"{name}.sum" if relu else name, data, kernel, bias, strides=[stride] * 2,
        pads=[side // 2] * 4, kernel_shape=[side] * 2,
    )  # fmt: skip
    return graph.op("Relu", name, made) if relu else made


def main(folder: Path) -> None:
    """Write the models into a folder."""
    for name, made in {"finder": finder(), "recognizer": recognizer()}.items():
        (folder / f"{name}.onnx").write_bytes(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
