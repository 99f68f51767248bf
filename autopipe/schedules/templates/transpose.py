"""Template for functions that read memory along one axis and write it along another one.

It serves transposes, changes of layout, channel shuffles, and elementwise ops fused with them. If
one of the two axes is short, the loop over it is unrolled inside the loop over the other one, and
LLVM makes interleaved loads or stores of it. Otherwise the output is written in tiles: a tile is
read in vectors, and the cache lines it writes stay in the cache until they are full.

Examples:
    for i, j in grid(128, 64): y[i, j] = x[j, i]          # a transpose: neither axis is short
    for tile in range(16 * 8):                            # after: tiles of 8 x 8
        i, j = tile // 8 * 8, tile % 8 * 8
        for b in range(8):
            y[i : i + 8, j + b] = x[j + b, i : i + 8]     # 8 neighbours read as one vector

    # NHWC [1, 56, 56, 3] to NCHW: the three channels are unrolled, LLVM loads them interleaved
    for h, w in grid(56, 56):
        y[0, 0, h, w], y[0, 1, h, w], y[0, 2, h, w] = x[0, h, w, 0:3]
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.movement import AxisPiece, Movement, combined, innermost, recognize
from autopipe.schedules.divisors import divisors
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import ELEMENTS, spread
from autopipe.schedules.templates.template import Template

SHORT = 8
"""Longest axis that is unrolled; LLVM interleaves no more than 8 loads or stores."""

SIDE = 8
"""Elements along a side of a tile where nothing is measured."""

MOST = 64
"""Most elements along a side of a tile."""

NARROW = 4
"""Elements in the shortest vector that pays."""


@dataclass(frozen=True, slots=True)
class TransposeTile:
    """The knobs."""

    read: int
    """Length of a tile along the axis that is contiguous in the tensor that is read."""
    written: int
    """Length of a tile along the axis that is contiguous in the output."""
    vector: str
    """Which side is a vector: `read`, `written`, or `none` to leave it to LLVM."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A read whose order in memory differs from that of the output."""

    extents: tuple[int, ...]
    """Extents of the output's axes."""
    inner: AxisPiece
    """How the read moves from one output to its neighbour in memory."""
    along: AxisPiece
    """The part of an output axis along which the read is contiguous."""
    alone: bool
    """Whether nothing else is read."""

    @property
    def interleaved(self) -> bool:
        """Tell whether one side is so short that LLVM can interleave along the other one."""
        inner, along = self.inner.extent, self.along.extent
        apart = self.along.lower * math.prod(self.extents[self.along.axis + 1 :])
        stores = inner <= SHORT and apart == inner
        return stores or (along <= SHORT and self.inner.stride == along)


class TransposeTemplate(Template[Crossing, TransposeTile]):
    """Copies whose rows are read across: squares are transposed in registers."""

    name = "transpose"
    version = schedule_version("transpose")

    def match(self, sch: Schedule) -> Crossing | None:
        """Return what the knobs depend on, or None if the function is for another template."""
        movement = recognize(sch)
        if movement is None or movement.parts:
            return None
        crossings = (_crossing(read, movement) for read in movement.reads if read)
        return next((crossing for crossing in crossings if crossing is not None), None)

    def settings(self, crossing: Crossing, hardware: HardwareParams) -> Iterator[TransposeTile]:  # noqa: ARG002
        """Yield every tile that divides the axes; only the whole axes if they are interleaved."""
        if crossing.interleaved:
            yield TransposeTile(crossing.along.extent, crossing.inner.extent, "none")
            return
        for read in divisors(crossing.along.extent, MOST):
            for written in divisors(crossing.inner.extent, MOST):
                if _is_vector(read):
                    yield TransposeTile(read, written, "read")
                if _is_vector(written):
                    yield TransposeTile(read, written, "written")

    def fill(self, crossing: Crossing, hardware: HardwareParams) -> TransposeTile:
        """Return the knobs for a processor, without measuring."""
        good = "read" if crossing.alone else "written"
        best = SIDE if crossing.along.extent > SHORT else 1

        def promise(tile: TransposeTile) -> tuple[bool, float]:
            lengths = (tile.read / best, tile.written / SIDE)
            return tile.vector == good, -sum(abs(math.log2(length)) for length in lengths)

        return max(self.settings(crossing, hardware), key=promise)

    def apply(self, sch: Schedule, crossing: Crossing, tile: TransposeTile) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        block = combined(sch)
        outer, along, inner = _sides(sch, sch.get_loops(block), crossing)
        if crossing.interleaved:
            short, long = (
                (inner, along) if crossing.inner.extent <= crossing.along.extent else (along, inner)
            )
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


TRANSPOSE: Final = TransposeTemplate()


def _sides(
    sch: Schedule, loops: Sequence[LoopRV], crossing: Crossing
) -> tuple[list[LoopRV], LoopRV, LoopRV]:
    """Return the outer loops, the loop that is contiguous in the read, and that in the output."""
    *outer, last = loops
    inner, along = crossing.inner, crossing.along
    if inner.extent < crossing.extents[-1]:
        head, last = sch.split(last, [None, inner.extent])
        outer.append(head)
    side = outer.pop(along.axis)
    if along.extent < int(sch.get(side).extent):
        head, side = sch.split(side, [None, along.extent])
        outer.insert(along.axis, head)
    return outer, side, last


def _crossing(read: tuple[AxisPiece, ...], movement: Movement) -> Crossing | None:
    """Return how a read crosses the output, or None if it moves with it or is too narrow."""
    inner = innermost(read, movement.extents)
    if inner.stride <= 1:
        return None
    last = len(movement.extents) - 1
    for piece in read:
        lower = inner.extent if piece.axis == last else 1
        if piece.stride == 1 and piece.lower == lower:
            crossing = Crossing(movement.extents, inner, piece, len(movement.reads) == 1)
            wide = not (inner.extent % NARROW and piece.extent % NARROW)
            return crossing if wide or crossing.interleaved else None
    return None


def _is_vector(extent: int) -> bool:
    """Tell whether a length is that of a vector: a power of two, not too short."""
    return extent >= NARROW and extent & (extent - 1) == 0
