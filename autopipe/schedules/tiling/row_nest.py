"""Writes reductions of few steps: the steps written out, in a plain loop over a row of outputs.

LLVM vectorizes the inner loop: it shuffles strided elements, and uses masked loads where elements
are read under a condition. A divided index is no obstacle where a period of outputs is written out.

Example: the gradient of pooling two neighbours reads g[j // 2] for output j. Two are written out:

    for plane in parallel(64):
        for i in range(56):
            for j in range(28):
                y[plane, i, 2 * j] = g[plane, i // 2, j] if at[plane, i // 2, j] == ... else 0
                y[plane, i, 2 * j + 1] = ...

Where neighbours read at a constant stride, vectors of outputs are written, the last of which ends
where the row does: 13 outputs are 0 to 7 and 5 to 12, where LLVM takes 8 and then one by one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import tvm
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import is_among
from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import Values, replace_variables
from autopipe.schedules.analysis.periods import LONGEST, find_period
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.loop_writer import as_list, job_loop
from autopipe.schedules.tiling.chains import buffers_of, store_results, write_reduced_output
from autopipe.schedules.tiling.row_vectors import VectorRow

_PLANE: Final = 2
"""Axes that are in a plane, where there are more."""


@dataclass(frozen=True, slots=True)
class RowNest:
    """Writes the loops of one reduction, and of the block that follows it."""

    reduction: Reduction
    last: SBlock | None
    """The elementwise block that computes the output, if there is one."""
    parallel: bool
    width: int = 1
    """Outputs in a vector; 1 leaves vectors to LLVM."""

    def write(self) -> tvm.tirx.Stmt:
        """Return the loops."""
        outer = self.reduction.extents[:-1]
        planes = outer[: max(1, len(outer) + 1 - _PLANE)]
        inside = outer[len(planes) :]
        name, dtype = f"{self.reduction.block.name_hint}_rows", self._dtype
        buffers = buffers_of(self.reduction, self.last)
        with (
            IRBuilder() as builder,
            job_loop(name, planes, dtype, buffers, parallel=self.parallel) as place,
        ):
            kinds = [str(start.ty.dtype) for start in self.reduction.reducer.starts]
            width = (self.width,)
            sums = [T.sblock_alloc_buffer(width, kind, scope="local") for kind in kinds]
            if self.width > 1:
                VectorRow(self.reduction, self.last, self.width).write(sums, place, inside)
            else:
                self._write_plain_row(sums, place, inside)
        return builder.get()

    def _write_plain_row(
        self, sums: Sequence[Any], place: Sequence[Expr], inside: Sequence[int]
    ) -> None:
        """Write a plain loop over a row, a period of outputs at a time."""
        row, period = self.reduction.extents[-1], self._find_period()
        with T.grid(*(number_of(n, self._dtype) for n in [*inside, row // period])) as grid:
            loops = as_list(grid)
            for part in range(period):
                column = loops[-1] * period + part if period > 1 else loops[-1]
                self._write_output(sums, [*place, *loops[:-1], column], loops)

    def _write_output(self, sums: Sequence[Any], at: Sequence[Expr], loops: Sequence[Any]) -> None:
        """Write the computation of one output.

        Results pass from step to step by buffers, which LLVM keeps in registers: with names for
        values TVM's simplifier takes three times as long for each further step of an argmax.
        """
        analyzer = self._known(at, loops)
        axes: Values = list(zip(self.reduction.axes, at, strict=True))
        reducer = self.reduction.reducer
        store_results(sums, 0, reducer.starts)
        numbers = (
            [number_of(n, self._dtype) for n in range(int(step))] for step in self.reduction.steps
        )
        for terms in product(*numbers):
            values = [*axes, *zip(self.reduction.sums, terms, strict=True)]

            def read(load: TensorLoad, values: Values = values) -> Expr:
                indices = [analyzer.simplify(replace_variables(i, values)) for i in load.indices]
                return load.source[tuple(indices)]

            after = reducer.step([one[0] for one in sums], values, read)
            store_results(sums, 0, [analyzer.simplify(value) for value in after])
        write_reduced_output(self.reduction, self.last, [one[0] for one in sums], axes)

    def _known(self, at: Sequence[Expr], loops: Sequence[Any]) -> Analyzer:
        analyzer = Analyzer()
        inner = self.reduction.extents[len(self.reduction.extents) - len(loops) :]
        for loop, extent in zip(loops, inner, strict=True):
            analyzer.bind(loop, tvm.ir.Range(0, number_of(extent, self._dtype)))
        for value, extent in zip(at, self.reduction.extents, strict=False):
            if isinstance(value, tvm.tirx.Var) and not is_among(value, loops):
                analyzer.bind(value, tvm.ir.Range(0, number_of(extent, self._dtype)))
        return analyzer

    def _find_period(self) -> int:
        """Return the period of divided indices along a row in outputs; 1 if it leaves a rest."""
        axis, extent = self.reduction.axes[-1], self.reduction.extents[-1]
        period = math.lcm(*(find_period(one, axis) for one in self.reduction.reducer.values))
        return period if 0 < period <= LONGEST and extent % period == 0 else 1

    @property
    def _dtype(self) -> str:
        return str(self.reduction.axes[-1].ty.dtype)
