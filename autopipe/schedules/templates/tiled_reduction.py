"""Template for whatever else is reduced while vectors lie along outputs: tiles in registers.

What template `contraction` does for sums of products, this does for any reducer (largest, least,
product, and, or), any value that is reduced (squared distances, sums of two operands, guarded
products) and several results at once (the largest element and where it is).

Example: c[i, j] = min over k of a[i, k] + b[k, j] of [112, 64] and [64, 96], in tiles of 6 x 16.

    for i, j in grid(19, 6):
        least = full((6, 16), inf)             # 12 registers of 8 floats
        for k in range(64):
            for r, c in unrolled(6, 16):
                least[r, c] = min(least[r, c], a[row + r, k] + b[k, 16 * j + c])
        c[row : row + 6, 16 * j : 16 * j + 16] = least
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tvm.s_tir import SBlock, Schedule

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import is_whole
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.effort import functions_pay
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.contraction import CONTRACTION, Terms, cut
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling import promise
from autopipe.schedules.tiling.form import Contraction, recognize
from autopipe.schedules.tiling.tile import Tile
from autopipe.schedules.tiling.tile import settings as tiles

_START: Final = 40_000
"""Cycles of work that pay for a second thread, which takes some microseconds to start."""

_NEAR: Final = 16
"""Bytes that a core reads in a cycle, where each element is read once."""

_COPIED: Final = 2
"""Cycles for an element of an operand that is copied into the order of tiles."""

_UNITS: Final = 2
"""Vector operations that start in one cycle."""

_FEW: Final = 9
"""Most steps that template `reduction` writes out along a row, sooner than tiles are filled."""


class TiledReductionTemplate(Template[Contraction, Tile]):
    """Reductions that are no sums of products, in tiles of outputs."""

    name = "tiled_reduction"
    version = schedule_version("tiled_reduction")

    def match(self, sch: Schedule) -> Contraction | None:
        """Return what the knobs depend on, or None if the function is for another template."""
        match = recognize(sch, _reduced)
        if (
            match is None or match.breadth == 1
        ):  # no vectors: template `reduction` makes some of steps
            return None
        if _is_left(sch):
            return None
        return match if is_whole(sch, sch.get_sblock(match.name)) else None

    def is_asked_last(self, match: Contraction) -> bool:
        """Tell whether rows of few steps are faster than tiles, of which there are several rows.

        Columns of several axes, as the pixels of a channel, are longer in tiles: `reduction` knows
        rows of the last axis alone.

        The mean of 3 x 3 pixels of [3, 225, 225] takes 0.8 of the time so; sums of nine rows of 33
        that are looked up, and of three bytes each, half.
        """
        axes = [axis for axis in match.lines.columns if match.extents[axis] > 1]
        return match.height > 1 and len(axes) == 1 and math.prod(match.terms) <= _FEW

    def settings(self, match: Contraction, hardware: HardwareParams) -> Iterator[Tile]:
        """Yield every tile whose results fit the registers, but for those that fetch."""
        room = replace(hardware, registers=hardware.registers // match.results)
        return (tile for tile in tiles(match, room) if not tile.fetched and not tile.ahead)

    def fill(self, match: Contraction, hardware: HardwareParams) -> Tile:
        """Return the tile of the least estimated time on a processor, without measuring.

        All strips of a band come first where each tile reads elements of its own, as windows do:
        the mean of 3 x 3 pixels of [3, 225, 225] takes 42 us so, and 98 us strip by strip.
        """
        lines = match.lines
        copied = match.breadth * math.prod(match.terms) * math.prod(
            match.extents[axis] for axis in lines.batch
        )  # fmt: skip

        def cycles(tile: Tile) -> float:
            return self.estimate(match, tile, hardware) + _COPIED * copied * tile.packed

        tile = min(self.settings(match, hardware), key=cycles)
        own = lines.alone and bool(lines.rows) and {*lines.rows} <= {*lines.batch}
        ordered = tile.rows < match.height and tile.columns < match.breadth
        return replace(tile, outer="rows") if own and ordered else tile

    def estimate(self, match: Contraction, tile: Tile, hardware: HardwareParams) -> float:
        """Return the time of a setting, in cycles."""
        return promise.estimate(match, tile, hardware)

    def apply(self, sch: Schedule, match: Contraction, tile: Tile) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        read_once = tile.rows == 1 and not match.lines.rows
        in_a_cycle = _NEAR * 8 // max(8, match.bits) if read_once else _UNITS * tile.width
        functions = functions_pay([sch.get(sch.get_sblock(match.name))])
        least = 0 if functions else _START * in_a_cycle
        cut(sch, match, tile, Terms(_reduced, least))


TILED_REDUCTION: Final = TiledReductionTemplate()


def _is_left(sch: Schedule) -> bool:
    """Tell whether template `contraction` leaves a product to others, for what it would copy.

    This one would copy as much, or lay short vectors along the few rows: [2, 1000] by the rows of
    [512, 1000] takes 98 us so, and 33 in vectors along rows.
    """
    product = CONTRACTION.match(sch)
    return product is not None and CONTRACTION.is_asked_last(product)


def _reduced(block: SBlock) -> Product | None:
    """Return what a block reduces; None for truths.

    TVM 0.27 makes vectors of bytes of vectors of truths, and then refuses to store them.
    """
    product = Product.reduced(block)
    dtypes = [str(store.buffer.ty.dtype) for store in product.stores] if product else []
    return None if "bool" in dtypes else product
