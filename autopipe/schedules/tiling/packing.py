"""Packs an operand: copies it into the order in which the tiles read it.

Example: weights [64, 96] (terms x columns) for tiles of 32 columns become `packed` [3, 64, 32]:

    for strip, k, c in grid(3, 64, 32):
        packed[strip, k, c] = w[k, strip * 32 + c]

A tile then reads its 64 x 32 weights one after the other in memory. The weights [3, 3, 64, 64] of
a convolution (HWIO) become [2, 3, 3, 64, 32] likewise. If the strips do not divide the columns, the
last strip overlaps the one before; a strip wider than its group repeats the group's last column. A
weight is packed once, when the model is built.

For a dot-product instruction that takes 4 terms at once, the terms of a column lie beside each
other: `packed` [3, 16, 128], where element 4 * c + i of step k is w[4 * k + i, strip * 32 + c].
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.ir import Expr
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import count_occurrences, replace_variables
from autopipe.schedules.loop_writer import write_packed_copy
from autopipe.schedules.tiling.nest import Nest


@dataclass(frozen=True, slots=True)
class Copy:
    """The packed copy of an operand."""

    nest: Nest
    spatial: Sequence[int]
    """The spatial axes that the operand depends on, without the columns."""
    summed: Sequence[int]
    """The summed axes that the operand depends on."""
    buffer: tvm.ir.Var
    """The copy itself: [further axes, strip, summed axes, column in the strip]; with a dot product
    [..., steps, columns x terms of a step]."""

    @property
    def name(self) -> str:
        """Name of the block that writes the copy."""
        return f"{self.nest.contraction.name}_packed"

    @classmethod
    def of(cls, nest: Nest) -> "Copy":
        """Return the copy that the tiles read from."""
        operand = nest.product.loads[nest.contraction.lines.operand]
        all_spatial, reduction_axes = nest.product.copied(operand)
        spatial = [axis for axis in all_spatial if axis not in nest.contraction.lines.columns]
        before = [nest.product.lengths[axis] for axis in spatial]
        terms = [nest.steps[axis] for axis in reduction_axes]
        group = nest.dot.group if nest.dot else 1
        shape = [*before, nest.strips, *terms, nest.tile.columns * group]
        kind = operand.source.ty
        buffer = tvm.tirx.decl_buffer(
            [number_of(extent, nest.index_dtype) for extent in shape],
            kind.dtype,
            f"{nest.contraction.name}_packed",
            layout=kind.layout,
        )
        return cls(nest, spatial, reduction_axes, buffer)

    @property
    def width(self) -> int:
        """Elements of a step."""
        return int(self.buffer.ty.shape[-1])

    @property
    def across(self) -> bool:
        """Whether neighbours in the copy are not neighbours in the operand."""
        operand = self.nest.product.loads[self.nest.contraction.lines.operand]
        last = self.nest.product.axes[self.nest.contraction.lines.columns[-1]]
        return not count_occurrences(operand.indices[-1], last)

    def element(
        self, index: Sequence[Expr], strip: Expr, terms: Sequence[Expr], column: Expr
    ) -> Expr:
        """Return the load of an element of the copy.

        Args:
            index: Values of all spatial axes.
            strip: Number of the strip.
            terms: Values of all summed axes.
            column: Column within the strip; with a dot product the place among its terms, too.
        """
        before = [index[axis] for axis in self.spatial]
        return self.buffer[(*before, strip, *(terms[axis] for axis in self.summed), column)]

    def write(self) -> tvm.tirx.Stmt:
        """Return the loops that write the copy, which the build runs if the operand is a weight."""
        free = self.nest.contraction.lines.free
        return write_packed_copy(self.name, self.buffer, self._locate, free=free)

    def _locate(self, index: Sequence[Expr]) -> Expr:
        """Return the load of the operand for an index of the copy."""
        nest, product, lines = self.nest, self.nest.product, self.nest.contraction.lines
        before, (strip, *terms, column) = index[: len(self.spatial)], index[len(self.spatial) :]
        if nest.dot is not None:
            group = nest.dot.group
            terms[-1] = terms[-1] * group + column % group
            column = column // group
        # A strip may be wider than its group: repeat the last column, and read nothing beyond.
        inside = T.min(column, nest.granule - 1)
        columns = nest.along(lines.columns, nest.column(strip) + inside)
        columns.update(zip(self.spatial, before, strict=True))
        values = [(product.axes[axis], value) for axis, value in columns.items()]
        values += [(product.sums[axis], var) for axis, var in zip(self.summed, terms, strict=True)]
        return replace_variables(product.loads[lines.operand], values)
