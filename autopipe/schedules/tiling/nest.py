"""The tiles of a sum of products: how many, in which order, and which outputs are in each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.ir import Expr
from tvm.s_tir import SBlock
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.expressions import unfold
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.tile import Tile


@dataclass(frozen=True, slots=True)
class Nest:
    """What the loops over the tiles are written from."""

    found: Contraction
    tile: Tile
    product: Product
    last: SBlock | None
    """The elementwise block that makes the output of the sum, if there is one."""

    @property
    def output(self) -> tvm.ir.Var:
        """The buffer that is written."""
        return (self.last or self.product.block).body.buffer

    @property
    def cuts(self) -> int:
        """Tiles along a group of columns."""
        return -(-self.found.lines.granule // self.tile.columns)

    @property
    def strips(self) -> int:
        """Tiles along all columns."""
        return self.found.breadth // self.found.lines.granule * self.cuts

    @property
    def order(self) -> list[tuple[int | str, int]]:
        """What the tiles are numbered along, and how many there are, outermost first."""
        found = self.found
        others: list[tuple[int | str, int]] = [(axis, found.extents[axis]) for axis in found.others]
        batch = [part for part in others if part[0] in found.lines.batch]
        rows = [part for part in others if part not in batch]
        rows.append(("rows", -(-found.height // self.tile.rows)))
        columns: list[tuple[int | str, int]] = [("columns", self.strips)]
        return batch + (columns + rows if self.tile.outer == "columns" else rows + columns)

    @property
    def jobs(self) -> int:
        """The number of all tiles."""
        return math.prod(count for _, count in self.order)

    def number(self, value: int) -> Expr:
        """Return a constant of the type that indices have."""
        return tvm.tirx.IntImm(self.product.axes[0].ty.dtype, value)

    def group(self, strip: Expr) -> Expr:
        """Return the first column of the group that a tile is in."""
        return strip // self.cuts * self.found.lines.granule

    def column(self, strip: Expr) -> Expr:
        """Return the first column of a tile; the last tile of a group overlaps the one before."""
        if self.cuts == 1:
            return self.group(strip)
        last = self.number(self.found.lines.granule - self.tile.columns)
        return self.group(strip) + T.min(strip % self.cuts * self.tile.columns, last)

    def along(self, axes: Sequence[int], index: Expr) -> dict[int, Expr]:
        """Return the index along each of some axes that are gone along as if they were one."""
        extents = [self.found.extents[axis] for axis in axes]
        return dict(zip(axes, unfold(extents, index), strict=True))

    def place(self, job: Expr) -> "Place":
        """Return where a tile is; to be called where statements are written."""
        at: dict[int | str, Expr] = {}
        for part, count in reversed(self.order):
            at[part] = T.Bind(job % count)
            job = job // count
        strip, band = at.pop("columns"), at.pop("rows")
        last = self.number(self.found.height - self.tile.rows)
        row = T.Bind(T.min(band * self.tile.rows, last))
        return Place(self, {int(axis): value for axis, value in at.items()}, strip, row)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tile is."""

    nest: Nest
    others: dict[int, Expr]
    """Its index along each spatial axis that it does not span."""
    strip: Expr
    """Its number along the columns."""
    row: Expr
    """Its first row."""

    def index(self, row: Expr, column: Expr) -> list[Expr]:
        """Return the indices of an output along the spatial axes."""
        nest, lines = self.nest, self.nest.found.lines
        rows = nest.along(lines.rows, self.row + row)
        parts = {**self.others, **rows, **nest.along(lines.columns, column)}
        return [parts[axis] for axis in range(len(parts))]
