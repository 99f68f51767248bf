"""Writes a row of outputs of a reduction of few steps as vectors, from strided elements too.

Example: the largest of 3 neighbours at every second place, 13 outputs in vectors of 8.

    for turn in range(2):
        first = min(8 * turn, 5)                    # the last vector ends where the row does
        steps = x[2 * first + 0, 2, ..., 14], x[2 * first + 1, 3, ...], x[2 * first + 2, 4, ...]
        y[first : first + 8] = max(max(max(-inf, steps[0]), steps[1]), steps[2])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, ScheduleError
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import Values, open_loop, replace_variables
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.loop_writer import as_list
from autopipe.schedules.tiling.chains import store_results, write_reduced_output
from autopipe.schedules.tiling.strided import deinterleave_reads, find_row_strides, locate_read


@dataclass(frozen=True, slots=True)
class VectorRow:
    """Writes the vectors of a row; an IRBuilder must be open."""

    reduction: Reduction
    last: SBlock | None
    """The elementwise block that computes the output, if there is one."""
    width: int
    """Outputs in a vector, at most those of a row."""

    def write(self, sums: Sequence[Any], place: Sequence[Expr], inside: Sequence[int]) -> None:
        """Write the loops over axes `inside` of a plane at `place`, and over the row's vectors.

        `sums` are the results of a vector. Raises ScheduleError where an operand has no small
        constant stride.
        """
        row = self.reduction.extents[-1]
        with T.grid(*(number_of(n, self._dtype) for n in [*inside, -(-row // self.width)])) as grid:
            *loops, turn = as_list(grid)
            first = T.Bind(T.min(turn * self.width, row - self.width))
            self._write_vector(sums, [*place, *loops], first)

    def _write_vector(self, sums: Sequence[Any], at: Sequence[Expr], first: Expr) -> None:
        """Write the computation of a vector of outputs, from `first` on along the row."""
        *outer, row = self.reduction.axes
        outer_values: Values = list(zip(outer, at, strict=True))
        numbers = (
            [number_of(n, self._dtype) for n in range(int(step))] for step in self.reduction.steps
        )
        steps: list[Values] = [
            [*outer_values, *zip(self.reduction.sums, terms, strict=True)]
            for terms in product(*numbers)
        ]
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
            write_reduced_output(
                self.reduction, self.last, results, [*outer_values, (row, first + lane)]
            )

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

        store_results(
            sums, lane, self.reduction.reducer.step([one[lane] for one in sums], values, read)
        )

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
