"""Make models of published architectures: python pipelines/models/make_networks.py [FOLDER].

Their weights are drawn by the pipelines, batch norms are folded. The same bytes everywhere.
"""

# ruff: noqa: INP001  a script

import sys
from pathlib import Path

import numpy as np
from layers import OUT_OF_SIGHT, Conv, Heads, Layers
from onnx import TensorProto

IMAGE = 224
SLICE = 128
"""Side of the image of the U-Net."""
LENGTH = 128
"""Words of a sentence."""


def resnet18() -> bytes:
    """Return ResNet-18 (He et al., 2016, arXiv:1512.03385)."""
    graph = Layers(seed=31)
    data = graph.conv("stem", "input", Conv(3, 64, 7, 2), "Relu")
    data = graph.op("MaxPool", "pool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    few = 64
    for stage, wide in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
            short = data
            if stride > 1:
                short = graph.conv(f"{name}.short", data, Conv(few, wide, 1, stride))
            data = graph.conv(f"{name}.first", data, Conv(few, wide, 3, stride), "Relu")
            data = graph.conv(f"{name}.second", data, Conv(wide, wide, 3))
            data = graph.op("Relu", name, graph.op("Add", f"{name}.sum", data, short))
            few = wide
    graph.classes(data, few)
    return graph.model("resnet18", [1, 3, IMAGE, IMAGE], [1, 1000])


def mobilenet_v2() -> bytes:
    """Return MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381)."""
    graph = Layers(seed=32)
    data, few = graph.conv("stem", "input", Conv(3, 32, 3, 2), "Relu6"), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip
    for stage, (times, wide, blocks, first) in enumerate(stages):
        for block in range(blocks):
            name, stride, short, hidden = (
                f"stage{stage}.{block}", 1 if block else first, data, few * times)  # fmt: skip
            if times > 1:
                data = graph.conv(f"{name}.more", data, Conv(few, hidden, 1), "Relu6")
            depthwise = Conv(hidden, hidden, 3, stride, hidden)
            data = graph.conv(f"{name}.deep", data, depthwise, "Relu6")
            data = graph.conv(f"{name}.less", data, Conv(hidden, wide, 1))
            if stride == 1 and few == wide:
                data = graph.op("Add", name, short, data)
            few = wide
    data = graph.conv("last", data, Conv(few, 1280, 1), "Relu6")
    graph.classes(data, 1280)
    return graph.model("mobilenet_v2", [1, 3, IMAGE, IMAGE], [1, 1000])


def mobilenet_v3() -> bytes:
    """Return the large MobileNetV3 (Howard et al., 2019, arXiv:1905.02244)."""
    graph = Layers(seed=33)
    data, few = graph.conv("stem", "input", Conv(3, 16, 3, 2), "HardSwish"), 16
    rows = (
        (3, 16, 16, 0, "Relu", 1), (3, 64, 24, 0, "Relu", 2), (3, 72, 24, 0, "Relu", 1),
        (5, 72, 40, 24, "Relu", 2), (5, 120, 40, 32, "Relu", 1), (5, 120, 40, 32, "Relu", 1),
        (3, 240, 80, 0, "HardSwish", 2), (3, 200, 80, 0, "HardSwish", 1),
        (3, 184, 80, 0, "HardSwish", 1), (3, 184, 80, 0, "HardSwish", 1),
        (3, 480, 112, 120, "HardSwish", 1), (3, 672, 112, 168, "HardSwish", 1),
        (5, 672, 160, 168, "HardSwish", 2), (5, 960, 160, 240, "HardSwish", 1),
        (5, 960, 160, 240, "HardSwish", 1),
    )  # fmt: skip
    for row, (side, hidden, wide, squeezed, kind, stride) in enumerate(rows):
        name, short = f"block{row}", data
        if hidden != few:
            data = graph.conv(f"{name}.more", data, Conv(few, hidden, 1), kind)
        data = graph.conv(f"{name}.deep", data, Conv(hidden, hidden, side, stride, hidden), kind)
        if squeezed:
            kinds = ("Relu", "HardSigmoid")
            data = graph.squeezed(f"{name}.weighed", data, (hidden, squeezed), kinds)
        data = graph.conv(f"{name}.less", data, Conv(hidden, wide, 1))
        if stride == 1 and few == wide:
            data = graph.op("Add", name, short, data)
        few = wide
    data = graph.conv("last", data, Conv(few, 960, 1), "HardSwish")
    graph.classes(data, 960, 1280)
    return graph.model("mobilenet_v3", [1, 3, IMAGE, IMAGE], [1, 1000])


def efficientnet_b0() -> bytes:
    """Return EfficientNet-B0 (Tan and Le, 2019, arXiv:1905.11946)."""
    graph = Layers(seed=34)
    data, few = graph.conv("stem", "input", Conv(3, 32, 3, 2), "Silu"), 32
    stages = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
              (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))  # fmt: skip
    for stage, (times, side, first, wide, blocks) in enumerate(stages):
        for block in range(blocks):
            name, stride, short, hidden = (
                f"stage{stage}.{block}", 1 if block else first, data, few * times)  # fmt: skip
            if times > 1:
                data = graph.conv(f"{name}.more", data, Conv(few, hidden, 1), "Silu")
            depthwise = Conv(hidden, hidden, side, stride, hidden)
            data = graph.conv(f"{name}.deep", data, depthwise, "Silu")
            kinds = ("Silu", "Sigmoid")
            data = graph.squeezed(f"{name}.weighed", data, (hidden, few // 4), kinds)
            data = graph.conv(f"{name}.less", data, Conv(hidden, wide, 1))
            if stride == 1 and few == wide:
                data = graph.damped(f"{name}.norm", data, wide)
                data = graph.op("Add", name, data, short)
            few = wide
    data = graph.conv("last", data, Conv(few, 1280, 1), "Silu")
    graph.classes(data, 1280)
    return graph.model("efficientnet_b0", [1, 3, IMAGE, IMAGE], [1, 1000])


def unet() -> bytes:
    """Return the U-Net (Ronneberger et al., 2015, arXiv:1505.04597), with padded convolutions."""
    graph = Layers(seed=35)
    data, few, sides = "input", 1, []

    def twice(name: str, data: str, few: int, wide: int) -> str:
        data = graph.conv(f"{name}.first", data, Conv(few, wide, 3), "Relu")
        return graph.conv(f"{name}.second", data, Conv(wide, wide, 3), "Relu")

    for level, wide in enumerate((64, 128, 256, 512)):
        data = twice(f"down{level}", data, few, wide)
        sides.append((data, wide))
        data = graph.op("MaxPool", f"pool{level}", data, kernel_shape=[2, 2], strides=[2, 2])
        few = wide
    data, few = twice("bottom", data, few, 1024), 1024
    for level, (side, wide) in reversed(list(enumerate(sides))):
        kernel = graph.drawn(f"up{level}.weight", few, wide, 2, 2)
        data = graph.op(
            "ConvTranspose", f"up{level}", data, kernel, graph.drawn(f"up{level}.bias", wide),
            kernel_shape=[2, 2], strides=[2, 2],
        )  # fmt: skip
        both = graph.op("Concat", f"both{level}", side, data, axis=1)
        data, few = twice(f"join{level}", both, few, wide), wide
    graph.conv("output", data, Conv(few, 2, 1))
    return graph.model("unet", [1, 1, SLICE, SLICE], [1, 2, SLICE, SLICE])


def bert() -> bytes:
    """Return four of the layers of BERT base (Devlin et al., 2019, arXiv:1810.04805)."""
    graph, sizes = Layers(seed=36), Heads(LENGTH, 768, 12, 3072)
    data = "input"
    for layer in range(4):
        data = graph.encoder(f"layer{layer}", data, sizes)
    graph.op("Identity", "output", data)
    return graph.model("bert", [1, LENGTH, sizes.width], [1, LENGTH, sizes.width])


def minilm() -> bytes:
    """Return MiniLM of 6 layers and 384 numbers a word (Wang et al., 2020, arXiv:2002.10957)."""
    graph, sizes = Layers(seed=37), Heads(LENGTH, 384, 12, 1536)
    graph.weight("axes", np.array([1, 2], np.int64))
    graph.weight("nothing", np.int64(0))
    hidden = graph.op("Equal", "hidden", "attention_mask", "nothing")
    away = graph.op("Where", "away", hidden, graph.number("far", OUT_OF_SIGHT),
                    graph.number("zero", 0))  # fmt: skip
    mask = graph.op("Unsqueeze", "mask", away, "axes")
    words = graph.op("Gather", "words", graph.drawn("words.weight", 30522, 384), "input_ids")
    kinds = graph.op("Gather", "kinds", graph.drawn("kinds.weight", 2, 384), "token_type_ids")
    both = graph.op("Add", "both", words, kinds)
    placed = graph.op("Add", "placed", both, graph.drawn("places", 1, LENGTH, 384))
    data = graph.normed("embedded", placed, 384)
    for layer in range(6):
        data = graph.encoder(f"layer{layer}", data, sizes, mask)
    graph.op("Identity", "output", data)
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: [1, LENGTH] for name in names}
    return graph.file("minilm", inputs, {"output": [1, LENGTH, 384]}, TensorProto.INT64)


MODELS = (bert, efficientnet_b0, minilm, mobilenet_v2, mobilenet_v3, resnet18, unet)


def main(folder: Path) -> None:
    """Write the models into a folder."""
    for made in MODELS:
        (folder / f"{made.__name__}.onnx").write_bytes(made())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
