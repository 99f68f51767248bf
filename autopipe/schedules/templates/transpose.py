"""Template for functions that write along one axis what lies along another one in memory.

Transposes, changes of layout, channel shuffles, and elementwise work fused with them. Where one of
the two axes is short, the loop over it is written out inside the loop over the other one, and LLVM
makes interleaved loads or stores of it. Otherwise the output is written in tiles: a tile is read
in vectors, and its lines are still in the cache when their next elements are written.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from autopipe.schedules.analysis.movement import Movement, Piece, combined, innermost, recognize
from autopipe.schedules.divisors import divisors
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.primitives import ELEMENTS, spread

NAME: Final = "transpose"
VERSION: Final = 1

SHORT = 8
"""Iterations that are written out; LLVM interleaves no more of them than that."""

SIDE = 8
"""Elements along a side of a tile where nothing is measured."""

MOST = 64
"""Elements along a side of a tile."""

NARROW = 4
"""Elements in the least vector that is worth the trouble."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The knobs."""

    read: int
    """Neighbours in memory of the tensor that is read."""
    written: int
    """Neighbours of the output."""
    vector: str
    """Which of them are moved at once: `read`, `written`, or `none` to leave it to LLVM."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A read that crosses the output's order."""

    extents: tuple[int, ...]
    """Extents of the output's axes."""
    inner: Piece
    """How the read moves with the neighbours of an output."""
    along: Piece
    """What the read is contiguous along."""
    alone: bool
    """Whether nothing else is read."""

    @property
    def interleaved(self) -> bool:
        """Tell whether one side is so short that the other one's neighbours are interleaved."""
        inner, along = self.inner.extent, self.along.extent
        apart = self.along.lower * math.prod(self.extents[self.along.axis + 1 :])
        stores = inner <= SHORT and apart == inner
        return stores or (along <= SHORT and self.inner.stride == along)


def match(sch: Schedule) -> Crossing | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    found = recognize(sch)
    if found is None or found.parts:
        return None
    crossings = (_crossing(read, found) for read in found.reads if read)
    return next((crossing for crossing in crossings if crossing is not None), None)


def settings(found: Crossing, hardware: Hardware) -> Iterator[Tile]:  # noqa: ARG001
    """Yield every tile that divides the function; whole axes where they are interleaved."""
    if found.interleaved:
        yield Tile(found.along.extent, found.inner.extent, "none")
        return
    for read in divisors(found.along.extent, MOST):
        for written in divisors(found.inner.extent, MOST):
            if _is_vector(read):
                yield Tile(read, written, "read")
            if _is_vector(written):
                yield Tile(read, written, "written")


def fill(found: Crossing, hardware: Hardware) -> Tile:
    """Return the knobs for a processor, without measuring."""
    good = "read" if found.alone else "written"
    best = SIDE if found.along.extent > SHORT else 1

    def promise(tile: Tile) -> tuple[bool, float]:
        lengths = (tile.read / best, tile.written / SIDE)
        return tile.vector == good, -sum(abs(math.log2(length)) for length in lengths)

    return max(settings(found, hardware), key=promise)


def apply(sch: Schedule, found: Crossing, tile: Tile) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    block = combined(sch)
    outer, along, inner = _sides(sch, sch.get_loops(block), found)
    if found.interleaved:
        short, long = (inner, along) if found.inner.extent <= found.along.extent else (along, inner)
        sch.reorder(*outer, long, short)
        sch.unroll(short)
        spread(sch, block, sch.fuse(*outer) if outer else long, ELEMENTS)
        return
    read_tile, read = sch.split(along, [None, tile.read])
    written_tile, written = sch.split(inner, [None, tile.written])
    sides = [written, read] if tile.vector == "read" else [read, written]
    sch.reorder(*outer, read_tile, written_tile, *sides)
    spread(sch, block, sch.fuse(*outer, read_tile, written_tile), ELEMENTS)
    sch.vectorize(sides[-1])


def _sides(
    sch: Schedule, loops: list[LoopRV], found: Crossing
) -> tuple[list[LoopRV], LoopRV, LoopRV]:
    """Split off the two loops that cross; return the others, the one read along, and the last."""
    *outer, last = loops
    inner, along = found.inner, found.along
    if inner.extent < found.extents[-1]:
        head, last = sch.split(last, [None, inner.extent])
        outer.append(head)
    side = outer.pop(along.axis)
    if along.extent < int(sch.get(side).extent):
        head, side = sch.split(side, [None, along.extent])
        outer.insert(along.axis, head)
    return outer, side, last


def _crossing(read: tuple[Piece, ...], found: Movement) -> Crossing | None:
    """Return what crosses in a read, or None if it is contiguous with the output."""
    inner = innermost(read, found.extents)
    if inner.stride <= 1:
        return None
    last = len(found.extents) - 1
    for piece in read:
        lower = inner.extent if piece.axis == last else 1
        if piece.stride == 1 and piece.lower == lower:
            crossing = Crossing(found.extents, inner, piece, len(found.reads) == 1)
            wide = not (inner.extent % NARROW and piece.extent % NARROW)
            return crossing if wide or crossing.interleaved else None
    return None


def _is_vector(extent: int) -> bool:
    return extent >= NARROW and extent & (extent - 1) == 0
