"""Template for transposes of any sides, static or dynamic, and elementwise work around them.

It serves functions that read some tensor along one loop and write along another one: layout
conversions and channel shuffles, too. A block is read in rows, as vectors, which are shuffled with
each other until they hold columns; these are written. Where a side is no multiple of a block, the
last block overlaps the one before: shared elements are written twice, with the same bits. Where a
side is shorter than any block, the loop over it is unrolled inside the loop over the other one, and
LLVM interleaves loads or stores.

Example: y[i, j] = x[j, i], with x of [66049, 21] floats, in blocks of 4 columns of 8 rows.

    for tile in parallel(4129):                           # two blocks of rows: lines of 64 bytes
        for p, q in grid(6, 2):
            i, j = min(4 * p, 17), min(16 * tile + 8 * q, 66041)
            for h in range(4):                            # unrolled: a vector of two rows
                r[h] = x[j + h, i : i + 4], x[j + 4 + h, i : i + 4]
            r = zip(r[0], r[2]), zip(r[1], r[3])          # in halves: a0 c0 a1 c1 | e0 g0 e1 g1
            r = zip(r[0], r[1]), zip(r[2], r[3])          #            a0 b0 c0 d0 | e0 f0 g0 h0
            for h in range(4):
                y[i + h, j : j + 8] = r[h]

Example: an image [224, 224, 3] to planes.

    for part in parallel(25):
        for pixel in range(min(2048, 50176 - 2048 * part)):
            for c in range(3):                            # unrolled
                y[c, 2048 * part + pixel] = x[2048 * part + pixel, c]
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError

from autopipe.compiler.dynamic_sizes.kernel_sizes import read_dynamic_sizes
from autopipe.environment.machines import LINE_BYTES
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import element_bits
from autopipe.schedules.analysis.movement import inline_into_last, match_movement
from autopipe.schedules.analysis.strides import StridedLoops, find_strided_loops
from autopipe.schedules.cost import threads_pay
from autopipe.schedules.divisors import floor_power
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import rewrite_function
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling.transposed_blocks import (
    TransposedBlocks,
    TransposeTile,
    find_crossed_loop,
)

_GROUP: Final = 128
"""Bits within which processors interleave vectors at once; wider ones do so in groups."""

_LINE: Final = 8 * LINE_BYTES
"""Bits of a line of the caches."""

_MIN_BLOCK_STEPS: Final = 4
"""Minimum steps along a side of a block, where elements have less than 64 bits."""

_LONG_SIDE_ELEMENTS: Final = 2048
"""Elements of a tile along the long side, where the other is unrolled."""

_ELEMENT_NS, _BIT_NS = 0.08, 0.0025
"""Nanoseconds for an element that is transposed and for each of its bits, in the caches."""

_SINGLE_COPY_NS: Final = 0.35
"""Nanoseconds for an element that is copied alone, where a side is too short for registers: 3
channels of 32 x 320 take 10.8 us."""


@dataclass(frozen=True, slots=True)
class Transposition:
    """A function that the template serves."""

    rows: int
    """Steps of the loop along which the output is written."""
    columns: int
    """Steps of the loop along which the transposed tensor is contiguous."""
    bits: int
    """Size of the largest element that is read or written."""
    elements: int
    """Elements of the output."""
    is_dynamic: bool = False
    """Whether sizes are dynamic."""
    interleaves: bool = False
    """Whether one side is too short for a block, at every size."""


class TransposeTemplate(Template[Transposition, TransposeTile]):
    """Transposes of any sides, block by block in registers, and elementwise ops fused with them."""

    name = "transpose"
    version = schedule_version("transpose")
    serves_dynamic = True

    def match(self, sch: Schedule) -> Transposition | None:
        """Match the function, or return None if the template does not apply."""
        if match_movement(sch) is None:
            return None
        block, loops, crossed_loop = _find_loops(sch.copy())
        bits = _find_element_bits(block, loops) if loops else None
        if loops is None or crossed_loop is None or bits is None:
            return None
        extents = [int(extent) for extent in loops.extents]
        rows, columns = extents[-1], extents[crossed_loop]
        return Transposition(
            rows, columns, bits, math.prod(extents),
            interleaves=min(rows, columns) < min(_MIN_BLOCK_STEPS, _GROUP // bits),
        )  # fmt: skip

    def prove_at_every_size(self, sch: Schedule, match: Transposition) -> Transposition | None:
        """Extend a match at specialized sizes to every size; None if loads are not linear then."""
        _, loops, crossed_loop = _find_loops(sch.copy())
        if loops is None or crossed_loop is None:
            return None
        sides = [loops.extents[-1], loops.extents[crossed_loop]]
        short = match.interleaves and any(
            isinstance(side, int) and side < _MIN_BLOCK_STEPS for side in sides
        )
        return replace(match, is_dynamic=True, interleaves=short)

    def settings(self, match: Transposition, hardware: HardwareParams) -> Iterator[TransposeTile]:
        """Yield blocks as wide as a vector and as a group, in tiles of one to eight lines."""
        if match.interleaves:
            yield TransposeTile(1, 1, _LONG_SIDE_ELEMENTS, 1)
            yield TransposeTile(1, 1, _LONG_SIDE_ELEMENTS, 1, threads=False)
            return
        group = _choose_group_columns(match)
        widths = {_choose_block_width(match, hardware), group}
        for width in sorted(widths, reverse=True):
            row_counts, column_counts = (
                sorted({_count_blocks_per_tile(match, *side, lines) for lines in (1, 2, 4, 8)})
                for side in ((match.rows, width), (match.columns, group))
            )
            for row_blocks, column_blocks in product(row_counts, column_counts):
                for threads in (True, False):
                    yield TransposeTile(width, group, row_blocks, column_blocks, threads=threads)

    def fill(self, match: Transposition, hardware: HardwareParams) -> TransposeTile:
        """Choose the knobs for a processor, without measuring.

        With dynamic sizes, the function decides at run time whether to use threads.
        """
        element_ns = _SINGLE_COPY_NS if match.interleaves else _ELEMENT_NS + match.bits * _BIT_NS
        nanoseconds = match.elements * element_ns
        threads = match.is_dynamic or threads_pay(nanoseconds, hardware.machine)
        if match.interleaves:
            return TransposeTile(1, 1, _LONG_SIDE_ELEMENTS, 1, threads=threads)
        group, width = _choose_group_columns(match), _choose_block_width(match, hardware)
        row_blocks = _count_blocks_per_tile(match, match.rows, width, 2)
        column_blocks = _count_blocks_per_tile(match, match.columns, group, 2)
        return TransposeTile(width, group, row_blocks, column_blocks, threads=threads)

    def apply(self, sch: Schedule, match: Transposition, knobs: TransposeTile) -> None:  # noqa: ARG002
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        dynamic_sizes = read_dynamic_sizes(sch.mod["main"])
        block, loops, crossed_loop = _find_loops(sch)
        if loops is None or crossed_loop is None:
            raise ScheduleError(f"{block.name_hint} has an index that is not linear")
        rewrite_function(
            sch, TransposedBlocks(block, loops, crossed_loop, knobs, dynamic_sizes).write()
        )


TRANSPOSE: Final = TransposeTemplate()


def _find_loops(sch: Schedule) -> tuple[SBlock, StridedLoops | None, int | None]:
    """Inline all blocks into the last one; return it, its loops and the crossed one of these."""
    block = sch.get(inline_into_last(sch))
    loops = find_strided_loops(block)
    return block, loops, find_crossed_loop(loops) if loops else None


def _choose_group_columns(match: Transposition) -> int:
    """Choose the number of columns that are transposed at a time."""
    return min(_GROUP // match.bits, floor_power(min(match.rows, match.columns)))


def _choose_block_width(match: Transposition, hardware: HardwareParams) -> int:
    """Choose the maximum number of rows that are transposed at a time."""
    return min(
        max(_choose_group_columns(match), hardware.lanes(match.bits)), floor_power(match.rows)
    )


def _count_blocks_per_tile(match: Transposition, extent: int, block: int, lines: int) -> int:
    """Return the blocks in a tile of at most some lines, for tiles of nearly equal size."""
    blocks = -(-extent // block)
    tiles = -(-blocks // max(1, lines * _LINE // match.bits // block))
    return -(-blocks // tiles)


def _find_element_bits(block: SBlock, loops: StridedLoops) -> int | None:
    """Return the bits of the largest element; None if a dtype has no vectors."""
    dtypes = [str(block.writes[0].source.dtype), *(str(r.load.source.dtype) for r in loops.reads)]
    if not isinstance(block.body.value, TensorLoad) and "bool" in dtypes:
        return None
    sizes = [element_bits(dtype) for dtype in dtypes]
    return max(sizes) if all(size in {8, 16, 32, 64} for size in sizes) else None
