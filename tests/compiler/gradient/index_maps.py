"""Random computes whose indices are affine, wrap, are divided, clamped, flipped or selected.

Each is built twice from one seed, of TVM's expressions and of numpy's arrays. So the reference of
values and of gradients is numpy's alone: TVM compiles some indices wrong in plain loops as well.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

import autopipe

STEP = 1e-5
TOLERANCE = 1e-6
EXTENTS = (1, 2, 3, 4, 5, 6, 8, 9)

Index = Callable[..., Any]
"""An index by the axes: of TVM's variables an expression, of numpy's grids an array."""


def either(condition, yes, no):
    """Return a choice, of expressions or of arrays."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return tirx.Select(
        condition, *(tirx.const(x, "int32") if isinstance(x, int) else x for x in (yes, no))
    )


def clamped(value, low, high):
    """Return a value within bounds."""
    if isinstance(value, np.ndarray):
        return np.clip(value, low, high)
    return tirx.max(tirx.min(value, high), low)


@dataclass(frozen=True)
class Read:
    """A read of the tensor: one index for each of its dimensions."""

    indices: tuple[Index, ...]

    def at(self, axes):
        return [index(*axes) for index in self.indices]


class IndexMaps:
    """A random compute of one tensor, by its seed."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        rank, of = self._random.randint(1, 3), self._random.randint(1, 3)
        self.extents = [self._random.choice(EXTENTS) for _ in range(rank)]
        self.summed = [self._random.choice(EXTENTS)] if self._random.random() < 0.25 else []
        reads = [
            Read(tuple(self._index() for _ in range(of))) for _ in range(self._random.randint(1, 2))
        ]
        grids = self._grids()
        places = [[np.broadcast_to(i, grids[0].shape) for i in read.at(grids)] for read in reads]
        low = [min(int(each[dim].min()) for each in places) for dim in range(of)]
        high = [max(int(each[dim].max()) for each in places) for dim in range(of)]
        self.shape = [
            most - least + 1 + self._random.choice((0, 0, 0, 2))
            for least, most in zip(low, high, strict=True)
        ]
        self._reads = [Read(tuple(map(_moved, read.indices, low))) for read in reads]
        self._kind = self._random.choice(("sum", "product", "sine"))

    def _grids(self):
        return np.meshgrid(*map(np.arange, (*self.extents, *self.summed)), indexing="ij")

    def _index(self) -> Index:
        """Return a random index."""
        count = len(self.extents) + len(self.summed)
        used = self._random.sample(range(count), min(count, self._random.choice((1, 1, 1, 2, 3))))
        steps = [self._random.choice((1, 1, 1, 1, -1, 2, 3, -2, 4)) for _ in used]
        offset = self._random.choice((0, 0, 1, 2, 3, 5, 7, -1, -4))

        def affine(*axes):
            return offset + sum(axes[at] * step for at, step in zip(used, steps, strict=True))

        index: Index = affine
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 2))):
            index = self._changed(index)
        return index

    def _changed(self, index: Index) -> Index:
        """Return an index that wraps, or is divided, clamped, flipped or selected."""
        number = self._random.choice((2, 3, 4, 5, 7, 8, 9, *self.extents))
        offset = self._random.choice((0, 0, 1, 3, -2))
        kind = self._random.choice(("wrap", "wrap", "circle", "divide", "clamp", "flip", "select"))
        if kind == "wrap":
            return lambda *axes: (index(*axes) + offset) % number
        if kind == "circle":  # along the whole of an axis
            at = self._random.randrange(len(self.extents))
            return lambda *axes: (axes[at] + number) % self.extents[at]
        if kind == "divide":
            return lambda *axes: (index(*axes) + offset) // number
        if kind == "clamp":
            return lambda *axes: clamped(index(*axes), offset, offset + number)
        if kind == "flip":
            return lambda *axes: clamped(index(*axes), 0, 31) ^ (number & 7)
        return lambda *axes: either(index(*axes) < number, index(*axes), index(*axes) - number)

    def value(self, read):
        """Return the value by what each read returns."""
        first, *others = [read(each) for each in self._reads]
        for other in others:
            first = first * other if self._kind == "product" else first + other
        if self._kind == "sine":
            return np.sin(first) if isinstance(first, np.ndarray) else te.sin(first)
        return first

    def declared(self):
        """Return the tensor and the compute in TE."""
        tensor = te.placeholder(self.shape, "float64", name="x")
        summed = [
            te.reduce_axis((0, extent), name=f"k{at}") for at, extent in enumerate(self.summed)
        ]

        def body(*axes):
            every = (*axes, *(axis.var for axis in summed))
            found = self.value(lambda read: tensor(*read.at(every)))
            return te.sum(found, axis=summed) if summed else found

        return tensor, te.compute(self.extents, body, name="y")

    def computed(self, values):
        """Return what numpy computes."""
        grids = self._grids()
        found = self.value(lambda read: values[tuple(read.at(grids))])
        return found.sum(axis=tuple(range(len(self.extents), found.ndim)))


def _moved(index: Index, low: int) -> Index:
    return lambda *axes: index(*axes) - low


def error(seed):
    """Return by how much values and gradients of a random compute differ from numpy's, at most."""
    case, generator = IndexMaps(seed), np.random.default_rng(seed)
    values = generator.uniform(-1, 1, case.shape)
    weights = generator.uniform(-1, 1, case.extents)
    tensor, output = case.declared()
    head = te.placeholder(output.shape, "float64", name="head")
    (gradient,) = autopipe.gradient(output, [tensor], head)
    (forward,) = autopipe.auto_schedule([tensor, output])(values)
    (backward,) = _scheduled([tensor, head], gradient, (values, weights))
    right = np.zeros(case.shape)
    for at in np.ndindex(*case.shape):
        up, down = values.copy(), values.copy()
        up[at] += STEP
        down[at] -= STEP
        right[at] = ((case.computed(up) - case.computed(down)) * weights).sum() / (2 * STEP)
    wrong = abs(forward - case.computed(values)).max()
    return max(wrong, abs(backward - right).max() / (1 + abs(right).max()))


def _scheduled(inputs, output, arrays):
    """Return the scheduled output; an input that it does not read is left out."""
    read: list[Any] = []
    left = [output]
    while left:
        tensor = left.pop()
        left += list(tensor.op.input_tensors)
        read.append(tensor)
    used = [any(one.same_as(other) for other in read) for one in inputs]
    given = [one for one, is_used in zip(inputs, used, strict=True) if is_used]
    numbers = [one for one, is_used in zip(arrays, used, strict=True) if is_used]
    return autopipe.auto_schedule([*given, output])(*numbers)
