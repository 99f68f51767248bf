"""Numbers the tiles of a sum of products and locates the outputs of each.

Example: 112 rows and 96 columns in tiles of 6 x 32 (the knob `outer` is "columns").

    cuts   = 3               ceil(96 / 32) tiles across the one group of 96 columns
    strips = 3               tiles across all columns
    order  = [("columns", 3), ("rows", 19)]        ceil(112 / 6) = 19 bands of rows
    jobs   = 57

    job = 41 -> band = 41 % 19 = 3, strip = 41 // 19 % 3 = 2
             -> rows 18..23 (3 * 6), columns 64..95 (2 * 32)
    job = 56 -> band 18, strip 2 -> rows 106..111: min(18 * 6, 112 - 6), not 108
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.ir import Expr
from tvm.s_tir import SBlock
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.blocks import Extent, number_of, parts_of, product_of
from autopipe.schedules.analysis.dot_products import DotProduct
from autopipe.schedules.analysis.expressions import unravel_index
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.tile import Tile


@dataclass(frozen=True, slots=True)
class Nest:
    """A sum of products and the tile that it is cut into."""

    contraction: Contraction
    tile: Tile
    product: Product
    last: SBlock | None
    """The elementwise block that computes the output from the sum, if there is one."""
    dot: DotProduct | None = None
    """The instruction that adds some products at once, if there is one."""

    @property
    def steps(self) -> tuple[Extent, ...]:
        """Steps of the sum along each of its axes; a dot product takes several terms in one."""
        if self.dot is None:
            return self.product.steps
        *outer, inner = self.product.steps
        return (*outer, inner // self.dot.group)

    @property
    def outputs(self) -> list[tvm.ir.Var]:
        """The buffers that the tiles write."""
        stores = [self.last.body] if self.last else self.product.stores
        return [store.buffer for store in stores]

    @property
    def height(self) -> Extent:
        """Number of outputs along the axes of the rows."""
        return product_of(self.product.lengths[axis] for axis in self.contraction.lines.rows)

    @property
    def granule(self) -> Extent:
        """Columns in a group; a dynamic number of columns is one group."""
        columns = [self.product.lengths[axis] for axis in self.contraction.lines.columns]
        is_static = all(isinstance(length, int) for length in columns)
        return self.contraction.lines.granule if is_static else product_of(columns)

    @property
    def cuts(self) -> Extent:
        """Number of tiles across one group of columns."""
        return parts_of(self.granule, self.tile.columns)

    @property
    def strips(self) -> Extent:
        """Number of tiles across all columns."""
        if not isinstance(self.granule, int):
            return self.cuts
        return self.contraction.breadth // self.contraction.lines.granule * self.cuts

    @property
    def order(self) -> list[tuple[int | str, Extent]]:
        """The loops over tiles with their extents, outermost first: axes, "rows", "columns"."""
        contraction = self.contraction
        outer_loops: list[tuple[int | str, Extent]] = [
            (axis, self.product.lengths[axis]) for axis in contraction.others
        ]
        batch = [part for part in outer_loops if part[0] in contraction.lines.batch]
        rows = [part for part in outer_loops if part[0] not in contraction.lines.batch]
        rows.append(("rows", parts_of(self.height, self.tile.rows)))
        columns: list[tuple[int | str, Extent]] = [("columns", self.strips)]
        return batch + (columns + rows if self.tile.outer == "columns" else rows + columns)

    @property
    def jobs(self) -> Extent:
        """Number of all tiles."""
        return product_of(count for _, count in self.order)

    @property
    def fits(self) -> Expr | None:
        """Return the condition under which there is a whole tile; None if there is one always."""
        conditions = [
            extent >= size
            for extent, size in ((self.height, self.tile.rows), (self.granule, self.tile.columns))
            if not isinstance(extent, int) and size > 1
        ]
        return tvm.tirx.all(*conditions) if conditions else None

    @property
    def index_dtype(self) -> str:
        """The dtype of the indices."""
        return str(self.product.axes[0].ty.dtype)

    def group(self, strip: Expr) -> Expr:
        """Return the first column of the group that a strip belongs to."""
        if not isinstance(self.granule, int):
            return number_of(0, self.index_dtype)
        return strip // self.cuts * self.granule

    def column(self, strip: Expr) -> Expr:
        """Return the first column of a strip; the last strip of a group overlaps the one before."""
        if isinstance(self.cuts, int) and self.cuts == 1:
            return self.group(strip)
        last = self.granule - self.tile.columns
        if not isinstance(self.granule, int):  # a copy is written even if there is no whole tile
            return T.min(strip * self.tile.columns, T.max(last, 0))
        return self.group(strip) + T.min(strip % self.cuts * self.tile.columns, last)

    def along(self, axes: Sequence[int], index: Expr) -> dict[int, Expr]:
        """Return the index along each of some axes that are numbered like one longer axis.

        Example: axes 1 and 2 have extents 7 and 9; index 20 gives {1: 2, 2: 2}, as 20 = 2 * 9 + 2.
        """
        extents = [self.product.lengths[axis] for axis in axes]
        return dict(zip(axes, unravel_index(extents, index), strict=True))

    def place(self, job: Expr) -> "TilePlace":
        """Bind the position of tile `job`. An IRBuilder must be open."""
        position: dict[int | str, Expr] = {}
        for part, extent in reversed(self.order):
            count = extent if isinstance(extent, int) else T.max(extent, 1)
            position[part] = T.Bind(job % count)
            job = job // count
        strip, band = position.pop("columns"), position.pop("rows")
        last = self.height - self.tile.rows
        row = T.Bind(T.min(band * self.tile.rows, last))
        return TilePlace(self, {int(axis): value for axis, value in position.items()}, strip, row)


@dataclass(frozen=True, slots=True)
class TilePlace:
    """The position of a tile in its nest."""

    nest: Nest
    others: dict[int, Expr]
    """Its index along each spatial axis on which it has one output."""
    strip: Expr
    """Its number among the strips of columns."""
    row: Expr
    """Its first row."""

    def index(self, row: Expr, column: Expr) -> list[Expr]:
        """Return the spatial indices of an output: `row` within the tile, `column` within all."""
        nest, lines = self.nest, self.nest.contraction.lines
        rows = nest.along(lines.rows, self.row + row)
        parts = {**self.others, **rows, **nest.along(lines.columns, column)}
        return [parts[axis] for axis in range(len(parts))]
