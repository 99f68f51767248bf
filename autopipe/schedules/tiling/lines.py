"""Chooses the axes along which the rows and columns of a tile lie.

A tile is a rectangle of outputs. Its columns become vectors, so they lie along an axis that is
contiguous in memory. Its rows lie along another axis, so that one vector of weights serves all
rows. Two axes that lie in memory like one axis are fused to one longer axis.

Examples (positions among the spatial axes of the output):

    function                              rows     columns  granule
    1x1 convolution, NHWC, 7x9, 19 out    (1, 2)   (3,)     19       height and width are one axis
    3x3 convolution, NHWC, 7x9, 19 out    (2,)     (3,)     19       the index is h + r, no axis
    3x3 convolution, 3 groups, 18 out     (2,)     (3,)     6        6 outputs share a group's input
    product of 6 x [11, 16] and [16, 21]  (1,)     (2,)     21       axis 0 is the batch

`tests/schedules/templates/test_contraction.py` checks these.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import tvm
import tvm_ffi
from tvm.ir import TensorLoad

from autopipe.schedules.analysis.blocks import Extent, extent_of
from autopipe.schedules.analysis.expressions import count_occurrences, find_steps
from autopipe.schedules.analysis.product import Product

_FILLED: Final = 4
"""Columns of the shortest vector that pays."""

_SHORT: Final = 16
"""Columns that fill the widest vector of any target: 16 floats of 32 bits are 512 bits."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The axes of a tile, as positions among the spatial axes."""

    rows: tuple[int, ...]
    """Neighbouring axes that lie in memory like one axis: the rows of a tile lie along them."""
    columns: tuple[int, ...]
    """The same for the columns, and so for the vectors."""
    granule: int
    """Columns in a group. The columns of one group read the same elements of the other operand, as
    in a grouped convolution; without groups, all columns are one group."""
    batch: tuple[int, ...]
    """The further axes of the operand that lies along the columns, such as a batch."""
    operand: int
    """Which load of the product reads the operand that lies along the columns."""
    packed: tuple[bool, ...]
    """The choices of the knob `packed`: True reads that operand from a copy in tile order."""
    free: bool
    """Whether that copy costs no run time: the operand is a weight, and the build copies it."""
    alone: bool
    """Whether no other operand lies along the columns."""


def choose_tile_axes(product: Product, weights: Sequence[tvm.ir.Var]) -> Lines | None:
    """Return the axes of a tile, or None if no operand can lie along its columns.

    The columns take the last axis along which an operand lies in memory, or can be copied to lie.
    If that axis is short, as the width of a small NCHW image is, the columns take another axis of
    a weight that fills vectors better; each output is then written alone. `weights` are the
    buffers that the build may pack.
    """
    choices = (
        _try_column_axis(product, weights, axis) for axis in reversed(range(len(product.axes)))
    )
    possible = [choice for choice in choices if choice is not None]
    short = bool(possible) and possible[0].granule < _FILLED
    preferred_choices = possible[:1] + [
        one for one in possible[1:] if one.free or (short and one.packed[0])
    ]
    return max(preferred_choices, key=lambda choice: min(choice.granule, _SHORT), default=None)


def extend_rows(lines: Lines, product: Product) -> Lines:
    """Extend the rows of a tile to all axes that lie in memory like one, dynamic or not.

    At specialized sizes an axis may have extent 1, such as a batch, and is left out of the rows.
    """
    if not lines.rows:
        return lines
    other_axes = {*lines.columns, *lines.batch}
    rows = _merge_axes(product, lines.rows[-1], other_axes)
    merged_axes = product.axes[rows[0] : lines.rows[0]]
    operand = product.loads[lines.operand]
    return (
        lines
        if any(count_occurrences(operand, axis) for axis in merged_axes)
        else replace(lines, rows=rows)
    )


def _try_column_axis(product: Product, weights: Sequence[tvm.ir.Var], last: int) -> Lines | None:
    """Return the axes of a tile with axis `last` as its last column axis, or None."""
    loads, extents, column = product.loads, product.extents, product.axes[last]
    columns = _merge_axes(product, last, other_axes=())
    granule = _compute_granule(loads, column, math.prod(extents[axis] for axis in columns))
    column_operands = [i for i, load in enumerate(loads) if not is_shared(load, column, granule)]
    scattered_operands = [i for i in column_operands if not _is_direct(loads[i], column)]
    if not column_operands and product.reducer is not None and last == len(product.axes) - 1:
        return Lines(
            _choose_row_axes(product, columns),
            columns,
            granule,
            (),
            0,
            (False,),
            free=False,
            alone=True,
        )
    if not column_operands or len(scattered_operands) > 1:  # only one operand can be copied
        return None
    if any(map(product.guards, columns)):  # lanes of a vector would part
        return None
    weight_operands = [
        i for i in column_operands if any(loads[i].source.same_as(weight) for weight in weights)
    ]
    operand = (scattered_operands or weight_operands or column_operands)[0]
    spatial, _ = product.copied(loads[operand])
    batch = tuple(axis for axis in spatial if axis not in columns and extents[axis] > 1)
    rows = _choose_row_axes(product, {*columns, *batch}) or _choose_row_axes(product, columns)
    packable = not {*batch} & {*rows} and product.copies(loads[operand]) <= 1
    packable = packable and product.pays_to_copy(loads[operand])
    free = packable and operand in weight_operands
    in_place = not scattered_operands and not free
    packing_choices = ((False,) if in_place else ()) + ((True,) if packable else ())
    if not packing_choices:
        return None
    return Lines(
        rows, columns, granule, batch, operand, packing_choices, free, len(column_operands) == 1
    )


def _choose_row_axes(product: Product, other_axes: Collection[int]) -> tuple[int, ...]:
    """Return the last axes that are not taken, merged; all their outputs use the same vectors."""
    free_axes = [axis for axis, n in enumerate(product.extents) if n > 1 and axis not in other_axes]
    return _merge_axes(product, free_axes[-1], other_axes) if free_axes else ()


def _merge_axes(product: Product, last: int, other_axes: Collection[int]) -> tuple[int, ...]:
    """Return the longest run of axes that ends with `last` and lies in every load like one axis.

    Example: in a 1x1 convolution the sum reads x[n, h, w, k], and h and w are the whole axes 1 and
    2 of the buffer, so `last` = 2 gives (1, 2). A 3x3 convolution reads x[n, h + r, w + s, k]: the
    index is not the axis itself, and `last` = 2 gives (2,).
    """
    first = last
    while first > 0 and first - 1 not in other_axes:
        outer, inner = product.axes[first - 1], product.axes[first]
        if not all(
            _can_fuse_axes(load, outer, inner, product.lengths[first]) for load in product.loads
        ):
            break
        if product.guards(first - 1) or product.guards(first):
            break
        first -= 1
    return tuple(range(first, last + 1))


def _can_fuse_axes(load: TensorLoad, outer: tvm.ir.Var, inner: tvm.ir.Var, extent: Extent) -> bool:
    """Tell whether a load uses two neighbouring axes like one axis, or uses none of them."""
    occurrences = count_occurrences(load, outer), count_occurrences(load, inner)
    shape, index = load.source.ty.shape, load.indices
    return occurrences == (0, 0) or (
        occurrences == (1, 1)
        and any(
            index[i].same_as(outer)
            and index[i + 1].same_as(inner)
            and tvm_ffi.structural_equal(extent_of(shape[i + 1]), extent)
            for i in range(len(index) - 1)
        )
    )


def _compute_granule(loads: Sequence[TensorLoad], column: tvm.ir.Var, breadth: int) -> int:
    """Return how many neighbouring columns read the same elements, or all columns without groups.

    Example: a grouped convolution of 18 outputs in 3 groups reads its input at channel
    `column // 6 * 3 + k`; the granule is 6.
    """
    divisors = [
        d for load in loads for d in (_list_column_divisors(load, column) or ()) if breadth % d == 0
    ]
    return math.gcd(breadth, *divisors)


def is_shared(load: TensorLoad, column: tvm.ir.Var, granule: int) -> bool:
    """Tell whether a load reads the same element for all `granule` columns of a group."""
    divisors = _list_column_divisors(load, column)
    return divisors is not None and all(divisor % granule == 0 for divisor in divisors)


def _list_column_divisors(load: TensorLoad, column: tvm.ir.Var) -> list[int] | None:
    """Return the numbers that a load divides the column by, or None if it uses it undivided."""
    divisors = [divisor for index in load.indices for divisor in _find_divisors(index, column)]
    return divisors if len(divisors) == count_occurrences(load, column) else None


def _find_divisors(index: tvm.ir.Expr, column: tvm.ir.Var) -> Iterator[int]:
    """Yield each n of `column // n` in an index."""
    if isinstance(index, tvm.tirx.FloorDiv) and index.a.same_as(column):
        if isinstance(index.b, tvm.tirx.IntImm):
            yield int(index.b)
        return
    for part in (getattr(index, "a", None), getattr(index, "b", None)):
        if part is not None:
            yield from _find_divisors(part, column)


def _is_direct(load: TensorLoad, column: tvm.ir.Var) -> bool:
    """Tell whether neighbouring columns are neighbours in memory."""
    long = [i for i, extent in enumerate(load.source.ty.shape) if int(extent) > 1]
    if not long or count_occurrences(load, column) != 1:
        return False
    return find_steps(load.indices[long[-1]], [column]) == [1]
