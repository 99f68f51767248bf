"""Writes reductions of few steps: the steps written out, in a plain loop over a row of outputs.

LLVM vectorizes the inner loop: it shuffles strided elements, and uses masked loads where elements
are read under a condition. A divided index is no obstacle where a period of outputs is written out.

Example: the gradient of pooling two neighbours reads g[j // 2] for output j. Two are written out:

    for plane in parallel(64):
        for i in range(56):
            for j in range(28):
                y[plane, i, 2 * j] = g[plane, i // 2, j] if at[plane, i // 2, j] == ... else 0
                y[plane, i, 2 * j + 1] = ...

Where neighbours read at a constant stride, vectors of outputs are written, from strided elements
too. The last of them ends where the row does, where LLVM takes the rest one by one.

Example: the largest of 3 neighbours at every second place, 13 outputs in vectors of 8.

    for turn in range(2):
        first = min(8 * turn, 5)                    # the last vector ends where the row does
        steps = x[2 * first + 0, 2, ..., 14], x[2 * first + 1, 3, ...], x[2 * first + 2, 4, ...]
        y[first : first + 8] = max(max(max(-inf, steps[0]), steps[1]), steps[2])
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import is_among
from autopipe.schedules.analysis.blocks import bind_extents, number_of
from autopipe.schedules.analysis.expressions import (
    Values,
    open_loop,
    open_loops,
    replace_variables,
)
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.analysis.simple_indices import LONGEST, find_period
from autopipe.schedules.loop_writer import job_loop, store_results, write_output
from autopipe.schedules.tiling.chains import buffers_of
from autopipe.schedules.tiling.strided import deinterleave_reads, find_row_strides, locate_read

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
            write_row = self._write_vector_row if self.width > 1 else self._write_plain_row
            write_row(sums, place, inside)
        return builder.get()

    def _write_plain_row(
        self, sums: Sequence[Any], place: Sequence[Expr], inside: Sequence[int]
    ) -> None:
        """Write a plain loop over a row, a period of outputs at a time."""
        row, period = self.reduction.extents[-1], self._find_period()
        with open_loops(T.serial, [*inside, row // period], self._dtype) as loops:
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
        store_results(sums, [0], reducer.starts)
        for terms in self._list_terms():
            values = [*axes, *terms]

            def read(load: TensorLoad, values: Values = values) -> Expr:
                indices = [analyzer.simplify(replace_variables(i, values)) for i in load.indices]
                return load.source[tuple(indices)]

            after = reducer.step([one[0] for one in sums], values, read)
            store_results(sums, [0], [analyzer.simplify(value) for value in after])
        self._write_result([one[0] for one in sums], axes)

    def _list_terms(self) -> Iterator[Values]:
        """Yield the values of the summed axes in each step of an output."""
        numbers = (
            [number_of(n, self._dtype) for n in range(int(step))] for step in self.reduction.steps
        )
        for terms in product(*numbers):
            yield list(zip(self.reduction.sums, terms, strict=True))

    def _write_result(self, results: Sequence[Expr], values: Values) -> None:
        write_output(self.reduction.reducer.finals, self.last, results, values)

    def _known(self, at: Sequence[Expr], loops: Sequence[Any]) -> Analyzer:
        extents = self.reduction.extents
        pairs = list(zip(loops, extents[len(extents) - len(loops) :], strict=True))
        for value, extent in zip(at, extents, strict=False):
            if isinstance(value, tvm.tirx.Var) and not is_among(value, loops):
                pairs.append((value, extent))
        return bind_extents(pairs)

    def _find_period(self) -> int:
        """Return the period of divided indices along a row in outputs; 1 if it leaves a rest."""
        axis, extent = self.reduction.axes[-1], self.reduction.extents[-1]
        period = math.lcm(*(find_period(one, axis) for one in self.reduction.reducer.values))
        return period if 0 < period <= LONGEST and extent % period == 0 else 1

    def _write_vector_row(
        self, sums: Sequence[Any], place: Sequence[Expr], inside: Sequence[int]
    ) -> None:
        """Write a loop over the vectors of a row.

        Raises ScheduleError where an operand has no small constant stride.
        """
        row = self.reduction.extents[-1]
        extents = [*inside, -(-row // self.width)]
        with open_loops(T.serial, extents, self._dtype) as (*loops, turn):
            first = T.Bind(T.min(turn * self.width, row - self.width))
            self._write_vector(sums, [*place, *loops], first)

    def _write_vector(self, sums: Sequence[Any], at: Sequence[Expr], first: Expr) -> None:
        """Write the computation of a vector of outputs, from `first` on along the row."""
        *outer, row = self.reduction.axes
        outer_values: Values = list(zip(outer, at, strict=True))
        steps: list[Values] = [[*outer_values, *terms] for terms in self._list_terms()]
        rooms = self._load_strided_operands(
            [[*step, (row, number_of(0, self._dtype))] for step in steps], first
        )
        with self._write_lane_loop() as lane:
            for buffer, start in zip(sums, self.reduction.reducer.starts, strict=True):
                T.buffer_store(buffer, start, [lane])
        for number, step in enumerate(steps):
            with self._write_lane_loop() as lane:
                operands = [room[number][lane] if room else None for room in rooms]
                self._step(sums, lane, [*step, (row, first + lane)], operands)
        with self._write_lane_loop() as lane:
            results = [one[lane] for one in sums]
            self._write_result(results, [*outer_values, (row, first + lane)])

    def _step(
        self,
        sums: Sequence[Any],
        lane: Expr,
        values: Values,
        loaded_operands: Sequence[Expr | None],
    ) -> None:
        """Write one step; `loaded_operands` has None for each operand that is still to be read."""
        operands = list(zip(self.reduction.loads, loaded_operands, strict=True))

        def read(load: TensorLoad) -> Expr:
            matching_operands = (
                room for one, room in operands if tvm_ffi.structural_equal(one, load)
            )
            room = next(matching_operands)
            return replace_variables(load, values) if room is None else room

        after = self.reduction.reducer.step([one[lane] for one in sums], values, read)
        store_results(sums, [lane], after)

    def _load_strided_operands(self, steps: Sequence[Values], first: Expr) -> list[list[Any]]:
        """Write the loads of operands with strided elements.

        Returns for each operand a vector for each step, none where its elements are contiguous.
        """
        strides = find_row_strides(self.reduction)
        if strides is None:
            raise ScheduleError("neighbours do not read at a constant stride")
        vectors: list[list[Any]] = []
        for load, stride in zip(self.reduction.loads, strides, strict=True):
            vectors.append([])
            if stride > 1:
                kind, width = str(load.source.ty.dtype), (self.width,)
                vectors[-1] = [T.sblock_alloc_buffer(width, kind, scope="local") for _ in steps]
                pairs = zip(steps, vectors[-1], strict=True)
                reads = [locate_read(load, step, room) for step, room in pairs]
                deinterleave_reads(load.source, reads, first, stride, self.width)
        return vectors

    def _write_lane_loop(self) -> Any:  # noqa: ANN401 - TVM's frame
        return open_loop(T.vectorized, self.width, self._dtype)

    @property
    def _dtype(self) -> str:
        return str(self.reduction.axes[-1].ty.dtype)
