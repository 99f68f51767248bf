"""LeNet-5 (LeCun et al., 1998) in TE, forward, and backward by `autopipe.gradient`.

With rectified units and largest values for pooling, as the RFC's example has it (apache/tvm#2954).
"""

# ruff: noqa: INP001  for scripts

from dataclasses import dataclass

from tvm import te, tirx, topi

CLASSES = 10
SIDE = 28
"""Rows and columns of an image."""

ZERO = tirx.const(0, "float32")


@dataclass(frozen=True)
class Lenet:
    """A batch of images, and what is computed of it."""

    images: te.Tensor
    """batch x 1 x 28 x 28."""
    labels: te.Tensor
    """batch x 10: the part of each class."""
    weights: tuple[te.Tensor, ...]
    """Ten tensors: weights and biases of five layers."""
    scores: te.Tensor
    """batch x 10, as logarithms of probabilities."""
    loss: te.Tensor
    """Cross-entropy of each image, as a part of the batch's mean; their sum is minimized."""

    @property
    def inputs(self) -> list[te.Tensor]:
        """All that is given."""
        return [self.images, self.labels, *self.weights]


def lenet(batch: int) -> Lenet:
    """Declare LeNet for so many images at a time."""
    images = te.placeholder((batch, 1, SIDE, SIDE), name="images")
    labels = te.placeholder((batch, CLASSES), name="labels")
    shapes = ((6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (CLASSES, 84))
    weights = []
    for layer, shape in enumerate(shapes, 1):
        weights.append(te.placeholder(shape, name=f"weight{layer}"))
        weights.append(te.placeholder(shape[:1], name=f"bias{layer}"))
    found = _pooled(images, *weights[:2], padding=2)  # 6 x 14 x 14
    found = _pooled(found, *weights[2:4], padding=0)  # 16 x 5 x 5
    found = topi.nn.flatten(found)
    for layer in (4, 6):
        found = topi.nn.relu(_dense(found, *weights[layer : layer + 2]))
    scores = topi.nn.log_softmax(_dense(found, *weights[8:]))
    kind = te.reduce_axis((0, CLASSES), name="kind")
    loss = te.compute(
        (batch,), lambda n: te.sum(-scores[n, kind] * labels[n, kind] / batch, axis=kind), "loss"
    )
    return Lenet(images, labels, tuple(weights), scores, loss)


def _pooled(data: te.Tensor, weight: te.Tensor, bias: te.Tensor, padding: int) -> te.Tensor:
    found = topi.nn.conv2d_nchw(data, weight, 1, padding, 1)
    found = te.compute(
        found.shape, lambda n, c, y, x: tirx.Max(found[n, c, y, x] + bias[c], ZERO), name="relu"
    )
    return topi.nn.pool2d(found, [2, 2], [2, 2], [1, 1], [0] * 4, "max")


def _dense(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, weight.shape[1]), name="k")
    shape = data.shape[0], weight.shape[0]
    found = te.compute(shape, lambda n, o: te.sum(data[n, k] * weight[o, k], axis=k), name="dense")
    return te.compute(shape, lambda n, o: found[n, o] + bias[o], name="biased")
