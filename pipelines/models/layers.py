"""Layers of published architectures, with weights that the pipeline draws.

The files hold no weights, as those in the onnx package hold none: ConstantOfShape stands for each,
so a file is small whatever the model is. Batch norms are folded into the convolutions before them,
as exporters do.
"""

# ruff: noqa: INP001  for scripts

from typing import NamedTuple

import numpy as np
from make_models import Graph
from onnx import numpy_helper

OUT_OF_SIGHT = -10_000.0


class Conv(NamedTuple):
    """Sizes of a convolution."""

    few: int
    wide: int
    side: int
    stride: int = 1
    groups: int = 1


class Heads(NamedTuple):
    """Sizes of a transformer's layer: rows, numbers in one, heads, hidden numbers."""

    length: int
    width: int
    heads: int
    hidden: int


class Layers(Graph):
    """A graph that is made of layers."""

    def drawn(self, name: str, *shape: int) -> str:
        """Add a weight that the pipeline draws."""
        sizes = self.weight(f"{name}.shape", np.array(shape, np.int64))
        value = numpy_helper.from_array(np.array([0.02], np.float32))
        return self.op("ConstantOfShape", name, sizes, value=value)

    def number(self, name: str, value: float) -> str:
        """Add a number, once."""
        if all(tensor.name != name for tensor in self.weights):
            self.weight(name, np.float32(value))
        return name

    def conv(self, name: str, data: str, conv: Conv, then: str = "") -> str:
        """Add a convolution, and the activation that is named."""
        kernel = self.drawn(
            f"{name}.weight", conv.wide, conv.few // conv.groups, conv.side, conv.side
        )
        made = self.op(
            "Conv", f"{name}.sum" if then else name, data, kernel,
            self.drawn(f"{name}.bias", conv.wide), strides=[conv.stride] * 2,
            pads=[conv.side // 2] * 4, kernel_shape=[conv.side] * 2, group=conv.groups,
        )  # fmt: skip
        return self.activated(name, made, then) if then else made

    def activated(self, name: str, data: str, kind: str) -> str:
        """Add an activation: an operator, or `Relu6` or `Silu`, as exporters write them."""
        if kind == "Relu6":
            return self.op("Clip", name, data, self.number("zero", 0), self.number("six", 6))
        if kind == "Silu":
            return self.op("Mul", name, data, self.op("Sigmoid", f"{name}.share", data))
        if kind == "HardSigmoid":
            return self.op(kind, name, data, alpha=1 / 6)
        return self.op(kind, name, data)

    def squeezed(self, name: str, data: str, sizes: tuple[int, int], kinds: tuple[str, str]) -> str:
        """Weigh channels by their means (Hu et al., 2018, arXiv:1709.01507).

        `sizes` are channels and squeezed channels, `kinds` the two activations.
        """
        few, less = sizes
        mean = self.op("GlobalAveragePool", f"{name}.mean", data)
        seen = self.conv(f"{name}.less", mean, Conv(few, less, 1), kinds[0])
        share = self.conv(f"{name}.more", seen, Conv(less, few, 1), kinds[1])
        return self.op("Mul", name, data, share)

    def damped(self, name: str, data: str, channels: int) -> str:
        """Add the batch norm of a branch that is added to what it came from, dividing by 11.

        Without it drawn weights let numbers grow from block to block until each rounding shows. Its
        variance is stored, and above 100, so that nobody draws it.
        """
        variance = self.weight(f"{name}.variance", np.full(channels, 121, np.float32))
        others = [self.drawn(f"{name}.{part}", channels) for part in ("scale", "bias", "mean")]
        return self.op("BatchNormalization", name, data, *others, variance)

    def classes(self, data: str, few: int, hidden: int = 0) -> str:
        """Add the mean over the image and dense layers to 1000 classes, the result `output`."""
        mean = self.op("GlobalAveragePool", "mean", data)
        flat = self.op("Flatten", "flat", mean)
        if hidden:
            flat, few = (
                self.op("HardSwish", "hidden", self.layer("dense", flat, few, hidden)),
                hidden,
            )
        return self.layer("output", flat, few, 1000)

    def layer(self, name: str, data: str, few: int, wide: int) -> str:
        """Add a dense layer over rows."""
        weight, bias = self.drawn(f"{name}.weight", few, wide), self.drawn(f"{name}.bias", wide)
        return self.op("Gemm", name, data, weight, bias)

    def dense(self, name: str, data: str, fan_in: int, fan_out: int) -> str:
        """Add a matrix product and a bias."""
        product = self.op(
            "MatMul", f"{name}.matmul", data, self.drawn(f"{name}.weight", fan_in, fan_out)
        )
        return self.op("Add", name, product, self.drawn(f"{name}.bias", fan_out))

    def normed(self, name: str, data: str, width: int) -> str:
        """Add LayerNormalization over the last axis."""
        gamma, beta = self.drawn(f"{name}.weight", width), self.drawn(f"{name}.bias", width)
        return self.op("LayerNormalization", name, data, gamma, beta, axis=-1, epsilon=1e-12)

    def encoder(self, name: str, data: str, sizes: Heads, mask: str = "") -> str:
        """Add a layer of BERT (Devlin et al., 2019, arXiv:1810.04805), with GELU as Erf."""
        width = sizes.width
        seen = self._attention(f"{name}.attention", data, sizes, mask)
        data = self.normed(f"{name}.seen", self.op("Add", f"{name}.sum", seen, data), width)
        hidden = self.dense(f"{name}.hidden", data, width, sizes.hidden)
        erf = self.op("Erf", f"{name}.erf", self.op(
            "Div", f"{name}.part", hidden, self.number("root", 2**0.5)))  # fmt: skip
        above = self.op("Add", f"{name}.above", erf, self.number("one", 1))
        weighed = self.op("Mul", f"{name}.weighed", hidden, above)
        gelu = self.op("Mul", f"{name}.gelu", weighed, self.number("half", 0.5))
        out = self.dense(f"{name}.out", gelu, sizes.hidden, width)
        return self.normed(name, self.op("Add", f"{name}.all", out, data), width)

    def _attention(self, name: str, data: str, sizes: Heads, mask: str) -> str:
        each = sizes.width // sizes.heads
        apart = self._list(f"{name}.apart", 1, sizes.length, sizes.heads, each)
        parts = {}
        for part, order in (
            ("query", (0, 2, 1, 3)),
            ("key", (0, 2, 3, 1)),
            ("value", (0, 2, 1, 3)),
        ):
            made = self.dense(f"{name}.{part}", data, sizes.width, sizes.width)
            heads = self.op("Reshape", f"{name}.{part}.heads", made, apart)
            parts[part] = self.op("Transpose", f"{name}.{part}.turned", heads, perm=order)
        scores = self.op("MatMul", f"{name}.scores", parts["query"], parts["key"])
        scores = self.op("Div", f"{name}.scaled", scores, self.number("scale", each**0.5))
        if mask:
            scores = self.op("Add", f"{name}.masked", scores, mask)
        shares = self.op("Softmax", f"{name}.shares", scores, axis=-1)
        mixed = self.op("MatMul", f"{name}.mixed", shares, parts["value"])
        back = self.op("Transpose", f"{name}.back", mixed, perm=(0, 2, 1, 3))
        joined = self._list(f"{name}.joined", 1, sizes.length, sizes.width)
        rows = self.op("Reshape", f"{name}.rows", back, joined)
        return self.dense(name, rows, sizes.width, sizes.width)

    def _list(self, name: str, *numbers: int) -> str:
        return self.weight(name, np.array(numbers, np.int64))
