"""Random functions with dynamic shapes: extents that are sums, differences, products and quotients.

Each family of operators has a generator. Likely sizes are often 1, or equal to each other or to a
constant of the function, where a template that goes by numbers alone takes one axis for another.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import te, tirx, topi
from tvm.s_tir import SBlock

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.find_nodes import is_among
from autopipe.schedules.analysis.blocks import SPATIAL

Tensors = list[Any]
"""Parameters of a function, its result last."""

CONSTANTS: Final = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 33)


class Shapes:
    """The sizes of one function, from which extents are drawn."""

    def __init__(self, random: Random) -> None:
        """Draw one or two sizes."""
        self.random = random
        self.sizes = [tirx.Var(name, "int64") for name in ("n", "m")[: random.choice((1, 2, 2))]]

    def size(self) -> Any:
        """Return an open size."""
        return self.random.choice(self.sizes)

    def dynamic(self) -> Any:
        """Return an open extent; it is not negative, whatever the sizes are."""
        one, other, random = self.size(), self.size(), self.random
        return random.choice(
            [
                lambda: one,
                lambda: one,
                lambda: one + other,
                lambda: one + random.choice((1, 3, 8)),
                lambda: one * random.choice((2, 3, 8)),
                lambda: tirx.max(one * 4 - random.choice((1, 3)), 1),
                lambda: tirx.max(one - other, 0) + 1,
                lambda: one * 4 - one,
                lambda: one * other,
                lambda: one * 8 + other + 1 - 1,
                lambda: (one + random.choice((0, 1, 3))) // random.choice((2, 4)) + 1,
                lambda: tirx.max(one // 4, 1),
            ]
        )()

    def constant(self) -> int:
        """Return a known extent."""
        return self.random.choice(CONSTANTS)

    def extent(self) -> Any:
        """Return an extent, open or not."""
        return self.dynamic() if self.random.random() < 0.6 else self.constant()

    def shape(self, rank: int) -> list[Any]:
        """Return a shape with an open extent at least."""
        extents = [self.extent() for _ in range(rank)]
        if all(isinstance(extent, int) for extent in extents):
            extents[self.random.randrange(rank)] = self.dynamic()
        return extents

    def tensor(self, shape: Sequence[Any], name: str, dtype: str = "float32") -> Any:
        """Return an input."""
        return te.placeholder(tuple(shape), dtype, name=name)

    def broadcast(self, shape: Sequence[Any], name: str) -> Any:
        """Return an input that some of the axes of a shape are missing in."""
        left = [extent if self.random.random() < 0.6 else 1 for extent in shape]
        return self.tensor(left[self.random.randrange(len(left)) :], name)


def reductions(shapes: Shapes) -> Tensors:
    """Reduce some of the last axes, or others, and go on with the result."""
    random, rank = shapes.random, shapes.random.randint(1, 4)
    x = shapes.tensor(shapes.shape(rank), "x")
    count = random.randint(1, rank)
    axes = list(range(rank - count, rank))
    if random.random() < 0.3:
        axes = sorted(random.sample(range(rank), count))
    kept = random.random() < 0.5
    kind = random.choice((topi.sum, topi.max, topi.min, topi.sum))
    value = topi.multiply(x, x) if random.random() < 0.3 else x
    y = kind(value, axis=axes, keepdims=kept)
    if random.random() < 0.3:
        y = topi.multiply(y, 0.125)
    if kept and random.random() < 0.4:
        y = topi.add(x, y)
    return [x, y]


def positions(shapes: Shapes) -> Tensors:
    """Find the place of the largest element."""
    rank = shapes.random.randint(1, 3)
    x = shapes.tensor(shapes.shape(rank), "x")
    return [x, topi.argmax(x, axis=rank - 1, keepdims=shapes.random.random() < 0.5)]


def softmax(shapes: Shapes) -> Tensors:
    """Compute softmax along an axis, of a sum with a mask sometimes."""
    rank = shapes.random.randint(1, 4)
    x = shapes.tensor(shapes.shape(rank), "x")
    given, value = [x], x
    if shapes.random.random() < 0.4:
        mask = shapes.broadcast(x.shape, "mask")
        given, value = [x, mask], topi.add(topi.multiply(x, 0.125), mask)
    axis = rank - 1 if shapes.random.random() < 0.8 else shapes.random.randrange(rank)
    kind = (
        topi.nn.softmax
        if axis < rank - 1 or rank != 2
        else shapes.random.choice((topi.nn.softmax, topi.nn.log_softmax))
    )
    return [*given, kind(value, axis=axis) if kind is topi.nn.softmax else kind(value)]


def normalizations(shapes: Shapes) -> Tensors:
    """Normalize rows, by the mean of squares or by mean and variance."""
    random, rank = shapes.random, shapes.random.randint(2, 4)
    x = shapes.tensor(shapes.shape(rank), "x")
    axes = list(range(rank - random.choice((1, 1, 2)), rank))
    row = [x.shape[axis] for axis in axes]
    scale, count = shapes.tensor(row, "scale"), 1
    for extent in row:
        count = count * extent
    count = topi.full((), "float32", tirx.Cast("float32", tirx.max(count, 1)))
    if random.random() < 0.3:
        return [x, scale, topi.nn.layer_norm(x, scale, None, axes, 1e-5)]
    centered = x
    if random.random() < 0.5:
        centered = topi.subtract(x, topi.divide(topi.sum(x, axes, keepdims=True), count))
    mean = topi.divide(topi.sum(topi.multiply(centered, centered), axes, keepdims=True), count)
    root = topi.sqrt(topi.add(mean, 1e-5))
    return [x, scale, topi.multiply(topi.divide(centered, root), scale)]


def copies(shapes: Shapes) -> Tensors:
    """Transpose, join, cut, pad, turn around, repeat or reshape."""
    random, rank = shapes.random, shapes.random.randint(1, 4)
    shape = shapes.shape(rank)
    dtype = random.choice(("float32", "float32", "int64", "int8", "bool"))
    x, axis = shapes.tensor(shape, "x", dtype), random.randrange(rank)

    def joined() -> Tensors:
        other = shapes.tensor([*shape[:axis], shapes.extent(), *shape[axis + 1 :]], "y", dtype)
        given = [x, other] if random.random() < 0.5 else [other, x]
        return [*given, topi.concatenate(given, axis=axis)]

    def cut() -> Tensors:
        begin, step = random.choice(((0, 1), (1, 1), (0, 2), (1, 3)))
        whole = [shapes.dynamic() + 3 if at == axis else n for at, n in enumerate(shape)]
        given = shapes.tensor(whole, "x", dtype)
        end = [n - random.choice((0, 1)) if at == axis else n for at, n in enumerate(whole)]
        start = [begin if at == axis else 0 for at in range(rank)]
        steps = [step if at == axis else 1 for at in range(rank)]
        return [given, topi.strided_slice(given, start, end, steps)]

    def reshaped() -> Tensors:
        left, right = shapes.extent(), shapes.constant()
        inner = [*shape[:axis], left, right, *shape[axis + 1 :]]
        merged = [*shape[:axis], left * right, *shape[axis + 1 :]]
        before, after = (inner, merged) if random.random() < 0.5 else (merged, inner)
        given = shapes.tensor(before, "x", dtype)
        return [given, topi.reshape(given, after)]

    def heads() -> Tensors:
        many, depth = shapes.constant(), shapes.constant()
        given = shapes.tensor([shape[0], shapes.extent(), many * depth], "x", dtype)
        apart = topi.reshape(given, [*given.shape[:2], many, depth])
        return [given, topi.transpose(apart, [0, 2, 1, 3])]

    return random.choice(
        [
            lambda: [x, topi.transpose(x, random.sample(range(rank), rank))],
            lambda: [x, topi.transpose(x, random.sample(range(rank), rank))],
            joined,
            joined,
            cut,
            reshaped,
            heads,
            lambda: [x, topi.flip(x, axis)],
            lambda: [x, topi.repeat(x, random.choice((2, 3)), axis)],
            lambda: [x, topi.nn.pad(x, [random.choice((0, 1, 2)) for _ in shape],
                                    [random.choice((0, 1, 5)) for _ in shape])],
        ]
    )()  # fmt: skip


def elementwise(shapes: Shapes) -> Tensors:
    """Add, multiply and compare with broadcasting."""
    random = shapes.random
    shape = shapes.shape(random.randint(1, 4))
    x, y = shapes.tensor(shape, "x"), shapes.broadcast(shape, "y")
    kind = random.choice((topi.add, topi.multiply, topi.subtract, topi.maximum))
    result = kind(x, y) if random.random() < 0.7 else kind(y, x)
    if random.random() < 0.3:
        mask = shapes.broadcast(shape, "mask")
        return [x, y, mask, topi.where(topi.greater(mask, 0.0), result, x)]
    return [x, y, topi.nn.relu(result) if random.random() < 0.4 else result]


def products(shapes: Shapes) -> Tensors:
    """Multiply matrices or batches of them, and go on with the result."""
    random = shapes.random
    batch = [shapes.extent() for _ in range(random.choice((0, 0, 1, 2)))]
    rows, columns, terms = shapes.shape(3)
    turned = random.random() < 0.3
    x = shapes.tensor([*batch, rows, terms], "x")
    own = batch if random.random() < 0.5 else []
    w = shapes.tensor([*own, *((columns, terms) if turned else (terms, columns))], "w")
    step = te.reduce_axis((0, terms), "k")

    def term(*index: Any) -> Any:
        *outer, i, j = index
        mine = outer if own else []
        return x[(*outer, i, step)] * w[(*mine, *((j, step) if turned else (step, j)))]

    shape = (*batch, rows, columns)
    y = te.compute(shape, lambda *index: te.sum(term(*index), step), "product")
    return _followed(shapes, [x, w], y)


def _followed(shapes: Shapes, given: Tensors, y: Any) -> Tensors:
    """Add a bias or a residual, an activation, or a transpose."""
    kind = shapes.random.choice(("", "bias", "residual", "relu", "turned"))
    if kind == "bias":
        bias = shapes.broadcast(y.shape, "bias")
        return [*given, bias, topi.nn.relu(topi.add(y, bias))]
    if kind == "residual":
        other = shapes.tensor(y.shape, "other")
        return [*given, other, topi.add(other, y)]
    if kind == "turned":
        order = list(range(len(y.shape)))
        shapes.random.shuffle(order)
        return [*given, topi.transpose(y, order)]
    return [*given, topi.nn.relu(y) if kind == "relu" else y]


def convolutions(shapes: Shapes) -> Tensors:
    """Convolve an image, also in groups of one channel."""
    random = shapes.random
    height, width = shapes.shape(2)
    side, stride = random.choice((1, 2, 3)), random.choice((1, 1, 2))
    given, made = random.choice((1, 3, 8)), random.choice((4, 7, 8, 16))
    height, width = height + side - 1, width + side - 1
    pad = random.choice((0, side // 2))
    batch = random.choice((1, 1, 2, shapes.size()))
    if random.random() < 0.3:
        x = shapes.tensor((batch, height, width, made), "x")
        w = shapes.tensor((side, side, made, 1), "w")
        y = topi.nn.depthwise_conv2d_nhwc(x, w, (stride, stride), (pad, pad), (1, 1))
    elif random.random() < 0.7:
        x, w = (
            shapes.tensor((batch, height, width, given), "x"),
            shapes.tensor((side, side, given, made), "w"),
        )
        y = topi.nn.conv2d_nhwc(x, w, stride, pad, 1)
    else:
        x, w = (
            shapes.tensor((batch, given, height, width), "x"),
            shapes.tensor((made, given, side, side), "w"),
        )
        y = topi.nn.conv2d_nchw(x, w, stride, pad, 1)
    return [x, w, topi.nn.relu(y) if random.random() < 0.5 else y]


def pools(shapes: Shapes) -> Tensors:
    """Pool an image."""
    random = shapes.random
    height, width = shapes.shape(2)
    side, stride = random.choice((2, 3)), random.choice((1, 2))
    pad = random.choice((0, 1))
    layout = random.choice(("NHWC", "NHWC", "NCHW"))
    channels = random.choice((3, 8, 16, 20))
    sides = (height + side, width + side)
    shape = (1, *sides, channels) if layout == "NHWC" else (1, channels, *sides)
    x = shapes.tensor(shape, "x")
    y = topi.nn.pool2d(
        x, (side, side), (stride, stride), (1, 1), (pad,) * 4, random.choice(("max", "avg")),
        layout=layout,
    )  # fmt: skip
    return [x, y]


def gathers(shapes: Shapes) -> Tensors:
    """Look rows up, at an axis that is open or not."""
    random, rank = shapes.random, shapes.random.randint(1, 3)
    table = shapes.tensor([shapes.extent() for _ in range(rank)], "table")
    index = shapes.tensor(shapes.shape(random.randint(1, 2)), "index", "int64")
    return [table, index, topi.take(table, index, axis=random.randrange(rank), mode="fast")]


FAMILIES: Final[dict[str, Callable[[Shapes], Tensors]]] = {
    one.__name__: one
    for one in (
        reductions, positions, softmax, normalizations, copies, elementwise, products,
        convolutions, pools, gathers,
    )
}  # fmt: skip


def drawn(family: str, seed: int) -> tvm.IRModule:
    """Return a function of a family, with what is known of its sizes."""
    random = Random(f"{family} {seed}")
    shapes = Shapes(random)
    *given, result = FAMILIES[family](shapes)
    function = te.create_prim_func(
        [*given, *_counts(shapes, given), result], index_dtype_override="int64"
    )
    free = [1] if family in ("products", "convolutions") and _is_static(given[1]) else []
    if random.random() < 0.7:
        function = function.with_attr("layout_free_buffers", free)
    reduced, known = _reduced(function), []
    for size in kernel_sizes.open_variables(function):
        largest = random.choice((9, 17, 33, 40))
        # a reduction over nothing leaves its result as it was
        smallest = random.choice((1, 1, 2) if is_among(size, reduced) else (1, 1, 0, 2))
        likely = random.choice((1, 1, 2, 3, 8, 16, 17, 24))
        known.append([smallest, max(1, smallest, min(likely, largest)), largest])
    if known:
        function = function.with_attr(kernel_sizes.SIZES, known)
    return tvm.IRModule({"main": function})


def _reduced(function: tirx.PrimFunc) -> list[Any]:
    """Return the sizes that decide how much is reduced."""
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(function.body, (SBlock, blocks.append))
    axes = [axis for block in blocks for axis in block.iter_vars if axis.iter_type != SPATIAL]
    return [size for axis in axes for size in tirx.analysis.undefined_vars(axis.dom.extent)]


def _is_static(tensor: Any) -> bool:
    return all(isinstance(extent, tirx.IntImm) for extent in tensor.shape)


def _counts(shapes: Shapes, given: Tensors) -> list[Any]:
    """Return the sizes that no shape has by itself: a function takes these as numbers."""
    own = [extent for tensor in given for extent in tensor.shape]
    used: list[Any] = []
    for extent in own:
        if not isinstance(extent, tirx.IntImm):
            used += tirx.analysis.undefined_vars(extent)
    return [
        size
        for size in shapes.sizes
        if any(size.same_as(one) for one in used) and not any(size.same_as(n) for n in own)
    ]
