"""Template for an inverted residual block, row by row: 1x1, depthwise and 1x1 convolution fused.

Such are the blocks of MobileNets: the first 1x1 convolution expands the channels, the depthwise one
filters each, and the last one projects them to few again. The expanded image overflows the cache.
Computed row by row, only the rows of a window are kept, in a ring buffer that fits the cache. The
last convolution may be missing, as where a reduction of the whole image comes in between.

Example: 1x1 to 96 channels, depthwise 3x3 with stride 2, and 1x1 to 24, of an image [112, 112, 16].

    for band in parallel(2):                               # 28 rows of the result each
        ring = array(3, 114, 96)                           # three rows, with a border
        for step in range(2 * 27 + 3):
            p = 56 * band + step                           # a row with the border
            ring[p % 3, 1:113] = relu(x[p - 1] @ w1) if 1 <= p < 113 else 0
            if step >= 2 and step % 2 == 0:
                i = 28 * band + (step - 2) // 2
                line[0:56] = relu(windows(ring, w2))       # [56, 96]
                y[i] = line @ w3                           # [56, 24]

The tiles of each part are those of `contraction` and `window`.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import tvm
from tvm.s_tir import Schedule, ScheduleError

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.windows import Windows, inline_copies
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import inline_blocks, make_schedule, rewrite_function
from autopipe.schedules.templates.contraction import build_operand_nests
from autopipe.schedules.templates.template import Template
from autopipe.schedules.templates.window import WINDOW, build_windows, pack_weights
from autopipe.schedules.tiling import promise
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.loops import Tiled
from autopipe.schedules.tiling.nest import Nest
from autopipe.schedules.tiling.packing import Copy
from autopipe.schedules.tiling.rolled_form import (
    RolledParts,
    find_border,
    list_output_buffers,
    match_rolled_parts,
)
from autopipe.schedules.tiling.rolling import RollingLoops
from autopipe.schedules.tiling.tile import Tile
from autopipe.schedules.tiling.tile import list_tiles as tiles
from autopipe.schedules.tiling.window_tile import WindowTile
from autopipe.schedules.tiling.windows import OpenWindows

_TRIED: Final = 3
"""Tiles of each part that are proposed."""

_ELEMENT_BYTES: Final = 4
"""Bytes of an element."""

_AGAIN: Final = 1.2
"""Maximum ratio of rows that a job computes to rows of its own, as bands overlap."""

_FULL: Final = 0.5
"""Share of the second-level cache that rows and weights may take, and that the whole image
overflows."""


@dataclass(frozen=True, slots=True)
class RowTiles:
    """The knobs."""

    first: Tile
    windows: WindowTile
    last: Tile | None
    rows: int
    """Rows of the result in a job."""


class RollingTemplate(Template[RolledParts, RowTiles]):
    """A block of MobileNet as one function, a few rows of its image at a time."""

    name = "rolling"
    version = schedule_version("rolling")

    def match(self, sch: Schedule) -> RolledParts | None:
        """Match the function, or return None if the template does not apply."""
        return match_rolled_parts(sch)

    def settings(self, match: RolledParts, hardware: HardwareParams) -> Iterator[RowTiles]:
        """Yield the best estimated tiles of each part, with one or two jobs per core."""
        single_core = replace(hardware, cores=1)
        strips = heapq.nsmallest(
            _TRIED,
            dict.fromkeys(
                replace(tile, shared=2, shared_from=None)
                for tile in WINDOW.settings(match.windows, single_core, overlap=True)
            ),
            key=lambda tile: WINDOW.estimate(match.windows, tile, single_core),
        )
        rows = match.result[0] * match.result[1]
        bands = [min(match.result[1], -(-rows // (hardware.cores * jobs))) for jobs in (1, 2)]
        for band, first, strip, last in itertools.product(
            dict.fromkeys(bands),
            _list_first_tiles(match, single_core),
            strips,
            _list_last_tiles(match, single_core),
        ):
            yield RowTiles(first, strip, last, band)

    def apply(self, sch: Schedule, match: RolledParts, knobs: RowTiles) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        prologue = _Prologue([], [])
        first = _build_product(make_schedule(match.parts[0]), match.first, knobs.first, prologue)
        windows = _build_windows(
            make_schedule(match.parts[1]), match.windows, knobs.windows, prologue
        )
        last = None
        if match.last is not None and knobs.last is not None:
            last = _build_product(make_schedule(match.parts[2]), match.last, knobs.last, prologue)
        source, windows_input = (list_output_buffers(part)[0] for part in match.parts[:2])
        border = find_border(match.parts[1], source)
        if border is None:
            raise ScheduleError("the convolution no longer reads the image through one border")
        loops = RollingLoops(
            first, border, windows, last, windows_input, match.height, match.stride, knobs.rows
        )
        prologue.nests.append(loops.write())
        rewrite_function(sch, tvm.tirx.stmt_seq(*prologue.nests), prologue.buffers)


ROLLING: Final = RollingTemplate()


def _list_first_tiles(match: RolledParts, hardware: HardwareParams) -> list[Tile]:
    """List the best tiles of the first convolution, which writes pixel after pixel."""
    row = match.first
    return [
        replace(tile, outer="rows")
        if tile.rows < row.height and tile.columns < row.breadth
        else tile
        for tile in _select_best_tiles(row, hardware)
    ]


def _list_last_tiles(match: RolledParts, hardware: HardwareParams) -> Sequence[Tile | None]:
    """List the best tiles of the last convolution; results larger than L1 are prefetched."""
    if match.last is None:
        return [None]
    size = math.prod(match.result[:3]) * match.last.breadth * _ELEMENT_BYTES
    return [
        replace(tile, fetched=size > hardware.l1)
        for tile in _select_best_tiles(match.last, hardware)
    ]


def _select_best_tiles(row: Contraction, hardware: HardwareParams) -> list[Tile]:
    """Select the tiles of the lowest estimated cycles for one row of a product."""
    plain = (
        tile
        for tile in tiles(row, hardware)
        if tile.packed and tile.outer == "columns" and tile.unroll == 1
        if not tile.fetched and not tile.ahead
    )
    return heapq.nsmallest(
        _TRIED, plain, key=lambda tile: promise.estimate_cycles(row, tile, hardware)
    )


def is_faster(module: tvm.IRModule, hardware: HardwareParams) -> bool:
    """Tell whether one function of `module` is expected to be faster than one for each reduction.

    That holds where the image overflows the second-level cache, but the rows of a window and the
    weights, which are read for each row, fit it, and where few rows are computed twice.
    """
    match = match_rolled_parts(make_schedule(module)) if hardware.backend.templates() else None
    if match is None:
        return False
    row = math.prod(match.image[2:]) * _ELEMENT_BYTES
    products = [part for part in (match.first, match.last) if part is not None]
    weights = sum(part.breadth * math.prod(part.terms) * _ELEMENT_BYTES for part in products)
    rows = ROLLING.fill(match, hardware).rows
    again = ((rows - 1) * match.stride + match.height) / (rows * match.stride)
    cache_bytes = hardware.l2 * _FULL
    fits_cache = row * match.height + weights <= cache_bytes
    return row * match.image[1] > cache_bytes and fits_cache and again <= _AGAIN


@dataclass(frozen=True, slots=True)
class _Prologue:
    """Loop nests before the fused loops: copies of weights, and padded or computed operands."""

    nests: list[tvm.tirx.Stmt]
    buffers: list[tvm.ir.Var]


def _build_product(sch: Schedule, row: Contraction, tile: Tile, prologue: _Prologue) -> Tiled:
    """Build the tiles of one row of a 1x1 convolution, and the copy of its weights."""
    prologue.nests.extend(build_operand_nests(sch, row, tile.width))
    prologue.buffers.extend(sch.get(sch.get_sblock(name)).body.buffer for name in row.before)
    product = Product.of(sch.get(sch.get_sblock(row.name)))
    if product is None:
        raise ScheduleError(f"block {row.name} no longer sums products")
    last = row.find_last(sch)
    nest = Nest(row, tile, product, last)
    copy = Copy.of(nest)
    prologue.nests.append(copy.write())
    prologue.buffers.append(copy.buffer)
    return nest, copy


def _build_windows(
    sch: Schedule, windows: Windows, tile: WindowTile, prologue: _Prologue
) -> OpenWindows:
    """Build the tiles of the depthwise convolution, and the copy of its weights."""
    inline_copies(sch)
    inline_blocks(sch, windows.after[:-1])
    pack_weights(sch, sch.get_sblock(windows.name), windows, tile.columns)
    nest, loops, buffers = build_windows(sch, windows, tile, DynamicSizes({}, {}, {}), pads=False)
    prologue.nests.extend(loops)
    prologue.buffers.extend(buffers)
    return nest
