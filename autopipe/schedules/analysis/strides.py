"""Describes a function without reductions by strides: how far each tensor moves with each loop.

Axes of the output are cut where a read divides them, and neighbours are one where all tensors move
on evenly, so that there are as few loops as can be.

Example: y[c, h, w] = x[h, w, c] + b[c] of [21, 257, 257] has two loops: 21 and 66049, as h and w
are one in y and in x. They move y by 66049 and 1, x by 1 and 21, b by 1 and 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tvm.ir import TensorLoad
from tvm.s_tir import SBlock

from autopipe.schedules.analysis.expressions import loads_of
from autopipe.schedules.analysis.movement import AxisPiece, movement, offset_of


@dataclass(frozen=True, slots=True)
class StridedRead:
    """A load and how it moves."""

    load: TensorLoad
    base: int
    """Where in memory it begins, counted in elements."""
    strides: tuple[int, ...]
    """Elements for one step of each loop."""


@dataclass(frozen=True, slots=True)
class StridedLoops:
    """Loops over the output of a block, in the order in which it lies in memory."""

    extents: tuple[int, ...]
    written: tuple[int, ...]
    """Elements of the output for one step of each loop; the last is 1."""
    reads: tuple[StridedRead, ...]

    def outside(self, *loops: int) -> list[int]:
        """Return all loops but some."""
        return [loop for loop in range(len(self.extents)) if loop not in loops]


def strided(block: SBlock) -> StridedLoops | None:
    """Return the loops of a block.

    None where a tensor does not move evenly, the value hangs on an index itself, or nothing moves.
    """
    found = movement(block)
    if found is None or 0 in found.extents or found.parts or found.indexed or found.elsewhere:
        return None
    if list(map(int, block.writes[0].source.shape)) != list(found.extents):
        return None
    loads = loads_of(block.body.value)
    offsets = [at for load in loads if (at := offset_of(load, block)) is not None]
    if not loads or len(offsets) < len(loads):
        return None
    cut = _cut(found.extents, [pieces for _, pieces in offsets])
    return None if cut is None else _joined(cut, loads, offsets)


def _cut(
    extents: Sequence[int], reads: Sequence[Sequence[AxisPiece]]
) -> list[tuple[int, list[int]]] | None:
    """Cut axes where reads do; None where one read's cut is no multiple of another's.

    Of each piece: its extent, and the stride of each read.
    """
    found = []
    for axis, extent in enumerate(extents):
        own = [[piece for piece in read if piece.axis == axis] for read in reads]
        cuts = {1, extent}
        for piece in (piece for pieces in own for piece in pieces):
            cuts |= {piece.lower, piece.lower * piece.extent}
        ends = sorted(cuts)
        if any(after % before for before, after in pairwise(ends)):
            return None
        for lower, upper in reversed(list(pairwise(ends))):
            found.append((upper // lower, [_stride(p, lower, upper) for p in own]))
    return found


def _stride(pieces: Sequence[AxisPiece], lower: int, upper: int) -> int:
    """Return how far a read moves for one step of a part of an axis."""
    return sum(
        piece.stride * (lower // piece.lower)
        for piece in pieces
        if piece.lower <= lower and upper <= piece.lower * piece.extent
    )


def _joined(
    cut: Sequence[tuple[int, list[int]]],
    loads: Sequence[TensorLoad],
    offsets: Sequence[tuple[int, Sequence[AxisPiece]]],
) -> StridedLoops:
    """Make one loop of neighbours that all tensors move through evenly."""
    loops: list[tuple[int, list[int]]] = []
    for extent, strides in reversed(cut):
        if loops and [s * loops[-1][0] for s in loops[-1][1]] == strides:
            loops[-1] = (loops[-1][0] * extent, loops[-1][1])
        else:
            loops.append((extent, strides))
    loops.reverse()
    extents = [extent for extent, _ in loops]
    return StridedLoops(
        extents=tuple(extents),
        written=tuple(math.prod(extents[at + 1 :]) for at in range(len(extents))),
        reads=tuple(
            StridedRead(load, base, tuple(strides[at] for _, strides in loops))
            for at, (load, (base, _)) in enumerate(zip(loads, offsets, strict=True))
        ),
    )
