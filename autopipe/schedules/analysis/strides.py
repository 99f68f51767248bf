"""Describes a function without reductions by the strides of each tensor along each loop.

Axes of the output are split where a read divides them, and adjacent axes are fused where all
tensors are linear in them, for the minimum number of loops. Dynamic axes are never split.

Example: y[c, h, w] = x[h, w, c] + b[c] of [21, 257, 257] has two loops: 21 and 66049, as h and w
are contiguous in y and in x. The strides are 66049 and 1 in y, 1 and 21 in x, 1 and 0 in b.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var
from tvm.s_tir import SBlock
from tvm.sym import Analyzer, detect_linear_equation

from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import (
    Extent,
    extent_of,
    is_static,
    lengths_of,
    product_of,
    simplify_extent,
)
from autopipe.schedules.analysis.expressions import (
    count_occurrences,
    flat_index,
    replace_variables,
)
from autopipe.schedules.analysis.movement import AxisPiece, find_load_offset, match_block_movement


@dataclass(frozen=True, slots=True)
class StridedRead:
    """A load and its strides."""

    load: TensorLoad
    base: Extent
    """Offset of its first element."""
    strides: tuple[Extent, ...]
    """Stride along each loop, in elements."""


@dataclass(frozen=True, slots=True)
class StridedLoops:
    """Loops over the output of a block, in memory order."""

    extents: tuple[Extent, ...]
    written: tuple[Extent, ...]
    """Stride of the output along each loop, in elements; the last is 1."""
    reads: tuple[StridedRead, ...]

    def outside(self, *loops: int) -> list[int]:
        """Return the loops other than the given ones."""
        return [loop for loop in range(len(self.extents)) if loop not in loops]


def find_strided_loops(block: SBlock) -> StridedLoops | None:
    """Return the strided loops of a block.

    None where a load is not linear, the value depends on an index, or there is no load.
    """
    if not is_static(block):
        return _find_dynamic_loops(block)
    movement = match_block_movement(block)
    if (
        movement is None
        or 0 in movement.extents
        or movement.parts
        or movement.indexed
        or movement.elsewhere
    ):
        return None
    if list(map(int, block.writes[0].source.shape)) != list(movement.extents):
        return None
    loads = list_loads(block.body.value)
    offsets = [at for load in loads if (at := find_load_offset(load, block)) is not None]
    if not loads or len(offsets) < len(loads):
        return None
    axis_parts = _cut_axes(movement.extents, [pieces for _, pieces in offsets])
    return (
        None
        if axis_parts is None
        else _fuse_loops(axis_parts, loads, [base for base, _ in offsets])
    )


def _find_dynamic_loops(block: SBlock) -> StridedLoops | None:
    """Return the strided loops of a block with dynamic shapes and linear indices."""
    store, axes, lengths = block.body, [axis.var for axis in block.iter_vars], lengths_of(block)
    if not isinstance(store, tirx.BufferStore) or not all(map(Expr.same_as, store.indices, axes)):
        return None
    if not all(map(_are_equal, map(extent_of, store.buffer.shape), lengths)):
        return None
    value = replace_variables(store.value, [], lambda load: tirx.const(0, load.source.dtype))
    loads = list_loads(store.value)
    moves = [_find_linear_strides(load, axes) for load in loads]
    offsets = [move for move in moves if move is not None]
    if (
        not loads
        or len(offsets) < len(loads)
        or any(count_occurrences(value, axis) for axis in axes)
    ):
        return None
    axis_parts = [
        (length, [strides[at] for _, strides in offsets])
        for at, length in enumerate(lengths)
        if length != 1
    ]
    return _fuse_loops(axis_parts, loads, [base for base, _ in offsets])


def _find_linear_strides(
    load: TensorLoad, axes: Sequence[Var]
) -> tuple[Extent, list[Extent]] | None:
    """Return the offset of a load and its stride along each axis; None if it is not linear."""
    flat = tirx.const(0, axes[0].ty.dtype) + flat_index(load.source, load.indices)
    steps = [simplify_extent(extent_of(step)) for step in detect_linear_equation(flat, axes)]
    return (steps[-1], steps[:-1]) if steps else None


def _cut_axes(
    extents: Sequence[int], reads: Sequence[Sequence[AxisPiece]]
) -> list[tuple[Extent, list[Extent]]] | None:
    """Split axes where reads divide them; None where split points are no multiples of each other.

    Returns the extent of each part and the stride of each read along it.
    """
    axis_parts: list[tuple[Extent, list[Extent]]] = []
    for axis, extent in enumerate(extents):
        axis_pieces = [[piece for piece in read if piece.axis == axis] for read in reads]
        cuts = {1, extent}
        for piece in (piece for pieces in axis_pieces for piece in pieces):
            cuts |= {piece.lower, piece.lower * piece.extent}
        ends = sorted(cuts)
        if any(after % before for before, after in pairwise(ends)):
            return None
        for lower, upper in reversed(list(pairwise(ends))):
            axis_parts.append(
                (upper // lower, [_compute_stride(p, lower, upper) for p in axis_pieces])
            )
    return axis_parts


def _compute_stride(pieces: Sequence[AxisPiece], lower: int, upper: int) -> int:
    """Return the stride of a read along a part of an axis."""
    return sum(
        piece.stride * (lower // piece.lower)
        for piece in pieces
        if piece.lower <= lower and upper <= piece.lower * piece.extent
    )


def _fuse_loops(
    axis_parts: Sequence[tuple[Extent, list[Extent]]],
    loads: Sequence[TensorLoad],
    bases: Sequence[Extent],
) -> StridedLoops:
    """Fuse adjacent loops in which all tensors are linear."""
    loops: list[tuple[Extent, list[Extent]]] = []
    for extent, strides in reversed(axis_parts):
        inner, steps = loops[-1] if loops else (1, [])
        if loops and all(map(_are_equal, [step * inner for step in steps], strides)):
            loops[-1] = (inner * extent, steps)
        else:
            loops.append((extent, strides))
    loops.reverse()
    extents = [extent for extent, _ in loops]
    return StridedLoops(
        extents=tuple(extents),
        written=tuple(product_of(extents[at + 1 :]) for at in range(len(extents))),
        reads=tuple(
            StridedRead(load, base, tuple(strides[at] for _, strides in loops))
            for at, (load, base) in enumerate(zip(loads, bases, strict=True))
        ),
    )


def _are_equal(left: Extent, right: Extent) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(Analyzer().can_prove_equal(left, right))
