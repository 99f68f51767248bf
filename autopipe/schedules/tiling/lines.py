"""Along which axes of a sum of products the rows and columns of a tile lie."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import tvm
from tvm.ir import TensorLoad
from tvm.sym import detect_linear_equation

from autopipe.schedules.analysis.expressions import occurrences
from autopipe.schedules.analysis.product import Product

_SHORT: Final = 16
"""Columns that fill the widest vectors there are."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The axes of a tile, by their positions among the spatial ones."""

    rows: tuple[int, ...]
    """Neighbouring axes that are one axis in memory: the rows of a tile lie along them."""
    columns: tuple[int, ...]
    """The same for the columns, and so for vectors."""
    granule: int
    """The columns are made of groups of this many that share an operand, as in grouped
    convolutions."""
    batch: tuple[int, ...]
    """The other axes of the operand that lies along the columns."""
    operand: int
    """Which load of the product reads that operand."""
    packed: tuple[bool, ...]
    """Whether it may be read from a copy in the order of the tiles."""
    free: bool
    """Whether that copy costs nothing: the build makes it of a weight."""
    alone: bool
    """Whether no other operand lies along the columns."""


def lines(product: Product, weights: Sequence[tvm.ir.Var]) -> Lines | None:
    """Lay the columns along the last axis that an operand follows, or can be made to follow.

    Where that is short, as in a small image with its channels first, they go along another axis of
    a weight, though the output is then written one by one. `weights` are the buffers whose layout
    is free.
    """
    every = (_along(product, weights, axis) for axis in reversed(range(len(product.axes))))
    found = [each for each in every if each is not None]
    usual = found[:1] + [each for each in found[1:] if each.free]
    return max(usual, key=lambda each: min(each.granule, _SHORT), default=None)


def _along(product: Product, weights: Sequence[tvm.ir.Var], last: int) -> Lines | None:
    loads, extents, column = product.loads, product.extents, product.axes[last]
    columns = _merged(product, last, taken=())
    granule = _granule(loads, column, math.prod(extents[axis] for axis in columns))
    ours = [i for i, load in enumerate(loads) if not is_shared(load, column, granule)]
    scattered = [i for i in ours if not _is_direct(loads[i], column)]
    if not ours or len(scattered) > 1:
        return None
    owned = [i for i in ours if any(loads[i].source.same_as(weight) for weight in weights)]
    operand = (scattered or owned or ours)[0]
    spatial, _ = product.copied(loads[operand])
    batch = tuple(axis for axis in spatial if axis not in columns and extents[axis] > 1)
    rows = _rows(product, {*columns, *batch}) or _rows(product, columns)
    packable = not {*batch} & {*rows} and product.copies(loads[operand]) <= 1
    free = packable and operand in owned
    ways = ((False,) if not scattered and not free else ()) + ((True,) if packable else ())
    return (
        Lines(rows, columns, granule, batch, operand, ways, free, len(ours) == 1) if ways else None
    )


def _rows(product: Product, taken: Collection[int]) -> tuple[int, ...]:
    """Return the last axes that are not taken: the vectors that they share are read once."""
    left = [axis for axis, n in enumerate(product.extents) if n > 1 and axis not in taken]
    return _merged(product, left[-1], taken) if left else ()


def _merged(product: Product, last: int, taken: Collection[int]) -> tuple[int, ...]:
    """Return the axes up to the last one that lie in memory like a single one, in every load."""
    first = last
    while first > 0 and first - 1 not in taken:
        outer, inner = product.axes[first - 1], product.axes[first]
        if not all(_is_one(load, outer, inner, product.extents[first]) for load in product.loads):
            break
        first -= 1
    return tuple(range(first, last + 1))


def _is_one(load: TensorLoad, outer: tvm.ir.Var, inner: tvm.ir.Var, extent: int) -> bool:
    used = occurrences(load, outer), occurrences(load, inner)
    shape, index = load.source.ty.shape, load.indices
    return used == (0, 0) or (
        used == (1, 1)
        and any(
            index[i].same_as(outer) and index[i + 1].same_as(inner) and int(shape[i + 1]) == extent
            for i in range(len(index) - 1)
        )
    )


def _granule(loads: Sequence[TensorLoad], column: tvm.ir.Var, breadth: int) -> int:
    """Return how many neighbouring columns share an operand, all of them if none is shared."""
    divisors = [d for load in loads for d in (_divided(load, column) or ()) if breadth % d == 0]
    return math.gcd(breadth, *divisors)


def is_shared(load: TensorLoad, column: tvm.ir.Var, granule: int) -> bool:
    """Tell whether a load reads the same element for all columns of a group."""
    divisors = _divided(load, column)
    return divisors is not None and all(divisor % granule == 0 for divisor in divisors)


def _divided(load: TensorLoad, column: tvm.ir.Var) -> list[int] | None:
    """Return what a load divides the column by, or None if it depends on the column itself."""
    divisors = [divisor for index in load.indices for divisor in _divisors(index, column)]
    return divisors if len(divisors) == occurrences(load, column) else None


def _divisors(index: tvm.ir.Expr, column: tvm.ir.Var) -> Iterator[int]:
    if isinstance(index, tvm.tirx.FloorDiv) and index.a.same_as(column):
        if isinstance(index.b, tvm.tirx.IntImm):
            yield int(index.b)
        return
    for part in (getattr(index, "a", None), getattr(index, "b", None)):
        if part is not None:
            yield from _divisors(part, column)


def _is_direct(load: TensorLoad, column: tvm.ir.Var) -> bool:
    """Tell whether neighbouring columns are neighbours in memory."""
    long = [i for i, extent in enumerate(load.source.ty.shape) if int(extent) > 1]
    if not long or occurrences(load, column) != 1:
        return False
    linear = detect_linear_equation(load.indices[long[-1]], [column])
    return bool(linear) and isinstance(linear[0], tvm.tirx.IntImm) and int(linear[0]) == 1
