"""The copy of an operand in the order in which tiles read it."""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.graph.weights import MARK
from autopipe.schedules.analysis.expressions import substitute
from autopipe.schedules.tiling.nest import Nest


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of an operand in the order in which tiles read it."""

    nest: Nest
    spatial: Sequence[int]
    """The spatial axes that the operand depends on, but for the columns."""
    summed: Sequence[int]
    """The axes it is summed over."""
    buffer: tvm.ir.Var
    """A strip of columns after the other, in each all that is summed, row by row."""

    @property
    def name(self) -> str:
        """The name of the block that makes it."""
        return f"{self.nest.found.name}_packed"

    @classmethod
    def of(cls, nest: Nest) -> "Copy":
        """Return the copy that the tiles read from."""
        operand = nest.product.loads[nest.found.lines.operand]
        every, summed = nest.product.copied(operand)
        spatial = [axis for axis in every if axis not in nest.found.lines.columns]
        before = [nest.found.extents[axis] for axis in spatial]
        terms = [nest.found.terms[axis] for axis in summed]
        shape = [*before, nest.strips, *terms, nest.tile.columns]
        kind = operand.source.ty
        buffer = tvm.tirx.decl_buffer(
            [nest.number(extent) for extent in shape],
            kind.dtype,
            f"{nest.found.name}_packed",
            layout=kind.layout,
        )
        return cls(nest, spatial, summed, buffer)

    def element(
        self, index: Sequence[Expr], strip: Expr, terms: Sequence[Expr], column: Expr
    ) -> Expr:
        """Read the copy at a column of a strip, where the axes have these values."""
        before = [index[axis] for axis in self.spatial]
        return self.buffer[(*before, strip, *(terms[axis] for axis in self.summed), column)]

    def write(self) -> tvm.tirx.Stmt:
        """Return the loops that make the copy."""
        nest, product = self.nest, self.nest.product
        operand = product.loads[nest.found.lines.operand]
        shape, dtype = list(self.buffer.ty.shape), str(product.axes[0].ty.dtype)
        with IRBuilder() as builder, T.grid(*shape) as loops, T.sblock(self.name):
            index = list(T.axis.remap("S" * len(shape), list(loops), dtype=dtype))
            before, (strip, *terms, column) = index[: len(self.spatial)], index[len(self.spatial) :]
            inside = T.min(column, nest.number(nest.found.lines.granule - 1))
            columns = nest.along(nest.found.lines.columns, nest.column(strip) + inside)
            columns.update(zip(self.spatial, before, strict=True))
            values = [(product.axes[axis], value) for axis, value in columns.items()]
            values += [
                (product.sums[axis], var) for axis, var in zip(self.summed, terms, strict=True)
            ]
            value = substitute(operand, values)
            T.reads(value)
            T.writes(self.buffer[tuple(index)])
            if nest.found.lines.free:
                T.sblock_attr({MARK: True})
            T.buffer_store(self.buffer, value, index)
        return builder.get()
