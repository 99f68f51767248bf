"""Numbers blocks of outputs in AMX tiles, and locates each block and its packed weights.

Example: 14 x 14 pixels and 40 columns, in blocks of 2 lines, 14 pixels and 16 columns.

    strips = 3               ceil(40 / 16) blocks across the columns
    order  = [3, 7, 1]       strips, pairs of lines, parts of a line (the knob `outer` is "columns")
    blocks = 21

    block = 15 -> strip 15 // 7 = 2, pair 15 % 7 = 1 -> lines 2 and 3, columns 24 to 39:
                  min(2 * 16, 40 - 16), not 32. The last strip overlaps the one before it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock

from autopipe.schedules.analysis.blocks import axes_of, number_of
from autopipe.schedules.analysis.expressions import (
    Values,
    find_block_start,
    replace_variables,
    unravel_index,
)
from autopipe.schedules.analysis.short_sums import ShortSum
from autopipe.schedules.loop_writer import write_packed_copy
from autopipe.schedules.tiling.tile_kernel import OperandPlace


@dataclass(frozen=True, slots=True)
class TilePlaces:
    """The blocks of a function."""

    extents: tuple[int, ...]
    """Of all outputs: any axes, lines, pixels, columns. A matrix has rows and columns."""
    lines: int
    rows: int
    columns: int
    """Outputs of a block."""
    outer: Literal["rows", "columns"]

    @property
    def strips(self) -> int:
        """Number of blocks across the columns."""
        return math.ceil(self.extents[-1] / self.columns)

    @property
    def blocks(self) -> int:
        """Number of all blocks."""
        return math.prod(self._bands) * self.strips

    @property
    def _bands(self) -> list[int]:
        """Numbers of blocks along all axes but the columns."""
        *outer, pixels, _ = self.extents
        if outer:
            outer[-1] //= self.lines
        return [*outer, pixels // self.rows]

    def strip_and_start(self, block: Expr) -> tuple[Expr, list[Expr]]:
        """Return the strip of a block, and the index of its first output along each axis."""
        bands = self._bands
        at = len(bands) if self.outer == "rows" else min(1, len(bands) - 1)
        parts = unravel_index([*bands[:at], self.strips, *bands[at:]], block)
        strip = parts.pop(at)
        sizes = [1] * len(bands)
        sizes[-1] = self.rows
        if len(bands) > 1:
            sizes[-2] = self.lines
        starts = [part * size for part, size in zip(parts, sizes, strict=True)]
        return strip, [*starts, self.column(strip)]

    def column(self, strip: Expr) -> Expr:
        """Return the first column of a strip."""
        return find_block_start(strip, self.columns, self.extents[-1])


@dataclass(frozen=True, slots=True)
class PackedTiles:
    """Weights in the order in which tiles read them."""

    places: TilePlaces
    found: ShortSum
    sums: SBlock
    """The block that sums."""
    group: int
    """Terms of a column that lie beside each other."""
    buffer: tvm.ir.Var
    """The copy: [strip, further axes, terms in groups, column in the strip, term in its group]."""

    @classmethod
    def of(cls, places: TilePlaces, short_sum: ShortSum, sums: SBlock, group: int) -> "PackedTiles":
        """Return the copy that tiles read from."""
        weights = sums.reads[short_sum.weights].source
        rest = [
            int(extent)
            for axis, extent in enumerate(weights.ty.shape)
            if axis not in short_sum.axes
        ]
        shape = [places.strips, *rest, short_sum.depth // group, places.columns, group]
        kind = axes_of(sums)[0][-1].var.ty.dtype
        extents = [number_of(extent, kind) for extent in shape]
        packed_weights = tirx.decl_buffer(
            extents, weights.ty.dtype, f"{short_sum.name}_packed", layout=weights.ty.layout
        )
        return cls(places, short_sum, sums, group, packed_weights)

    @property
    def name(self) -> str:
        """Name of the block that writes the copy."""
        return str(self.buffer.name)

    def first(self, strip: Expr, values: Values) -> OperandPlace:
        """Return the first weight of a strip; `values` are those of all axes of the sum."""
        read = self.sums.reads[self.found.weights]
        rest = [
            replace_variables(part.min, values)
            for axis, part in enumerate(read.region)
            if axis not in self.found.axes
        ]
        inner = [number_of(0, strip.ty.dtype)] * 3
        return OperandPlace(self.buffer, (strip, *rest, *inner))

    def write(self) -> tirx.Stmt:
        """Return the loops that write the copy, which the build runs if weights are a parameter."""
        return write_packed_copy(self.name, self.buffer, self._locate, free=self.found.free)

    def _locate(self, index: Sequence[Expr]) -> Expr:
        """Return the load of the weight for an index of the copy."""
        strip, *rest, step, column, term = index
        weights, other_indices = self.sums.reads[self.found.weights], iter(rest)
        columns, depth = self.found.axes
        tile_indices = {
            columns: self.places.column(strip) + column,
            depth: step * self.group + term,
        }
        axes = range(len(weights.region))
        place = (tile_indices[at] if at in tile_indices else next(other_indices) for at in axes)
        return weights.source[tuple(place)]
