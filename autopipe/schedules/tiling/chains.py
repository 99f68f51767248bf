"""Writes reductions of some outputs side by side, or of one output in partial results.

A step of a reduction waits some cycles for the step before it. Steps of several outputs do not wait
for each other, nor do those of partial results, which vectors hold. Template `reduction` has an
example of both.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.blocks import Extent
from autopipe.schedules.analysis.expressions import (
    Values,
    open_loop,
    open_loops,
    replace_variables,
    write_element_loops,
)
from autopipe.schedules.analysis.joining import Join
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.loop_writer import (
    job_loop,
    list_read_buffers,
    store_results,
    write_output,
)


@dataclass(frozen=True, slots=True)
class ChainLoops:
    """Writes the loops of one reduction, and of the block that follows it."""

    reduction: Reduction
    last: SBlock | None
    """The elementwise block that computes the output, if there is one."""
    axis: int
    """The axis along which outputs are side by side, -1 where there is none."""
    chains: int
    """The number of outputs side by side."""
    parallel: bool
    join: Join | None = None
    """The operation that combines partial results of an output, if there are any."""
    partial: int = 1
    """Number of partial results, a power of two."""
    width: int = 1
    """Partial results in a vector, a power of two."""

    def write(self) -> tvm.tirx.Stmt:
        """Return the loops."""
        extents = self.reduction.extents
        outer_extents = [extent for axis, extent in enumerate(extents) if axis != self.axis]
        length = extents[self.axis] if self.axis >= 0 else 1
        sizes = [*outer_extents, -(-length // self.chains)]
        name, dtype = f"{self.reduction.block.name_hint}_chains", self._dtype
        buffers = buffers_of(self.reduction, self.last)
        with (
            IRBuilder() as builder,
            job_loop(name, sizes, dtype, buffers, parallel=self.parallel) as (*place, tile),
        ):
            first = T.Bind(T.min(tile * self.chains, length - self.chains))
            if self.partial > 1:
                self._write_one_output(self._list_axis_values(place, first))
            else:
                self._write_side_by_side(place, first)
        return builder.get()

    def _write_side_by_side(self, outer_index: Sequence[Expr], first: Expr) -> None:
        """Write the sums of neighbouring outputs, from index `first` on along the axis."""
        sums = self._sums(self.chains)
        for chain in self._write_chain_loop():
            self._initialize_sums(sums, chain)
        at_first = self._list_axis_values(outer_index, first)
        with self._open_step_loops(self.reduction.steps, at_first) as terms:
            sum_values: Values = list(zip(self.reduction.sums, terms, strict=True))
            for chain in self._write_chain_loop():
                self._step(
                    sums, chain, [*self._list_axis_values(outer_index, first + chain), *sum_values]
                )
        for chain in self._write_chain_loop():
            self._write_result(sums, chain, self._list_axis_values(outer_index, first + chain))

    def _write_one_output(self, at: Values) -> None:
        """Write the sum of one output as partial results, the last steps in vectors."""
        sums, width = self._sums(self.partial), self.width
        for lane in write_element_loops(self.partial, width, self._dtype, unroll=True):
            self._initialize_sums(sums, lane)
        *outer, last = self.reduction.steps
        count = int(last)  # of constant length
        with self._open_step_loops(outer, at) as terms:
            names = self.reduction.sums

            def step(lane: Expr, index: Expr) -> None:
                sum_values = zip(names, [*terms, index], strict=True)
                self._step(sums, lane, [*at, *sum_values])

            if count >= self.partial:
                with open_loop(T.serial, count // self.partial, self._dtype) as turn:
                    for lane in write_element_loops(self.partial, width, self._dtype, unroll=True):
                        step(lane, turn * self.partial + lane)
            for lane in write_element_loops(count % self.partial, width, self._dtype):
                step(lane, count // self.partial * self.partial + lane)
        self._join_partials(sums)
        self._write_result(sums, 0, at)

    def _join_partials(self, sums: Sequence[Any]) -> None:
        """Write the tree that combines partial results, halves with halves, until one is left."""
        count = self.partial
        while count > 1 and self.join is not None:
            count //= 2
            for lane in write_element_loops(count, self.width, self._dtype, unroll=True):
                first_half, second_half = ([one[at] for one in sums] for at in (lane, lane + count))
                store_results(sums, [lane], self.join(first_half, second_half))

    def _initialize_sums(self, sums: Sequence[Any], at: Expr) -> None:
        for buffer, start in zip(sums, self.reduction.reducer.starts, strict=True):
            T.buffer_store(buffer, start, [at])

    def _step(self, sums: Sequence[Any], at: Expr, values: Values) -> None:
        def read(load: TensorLoad) -> Expr:
            return replace_variables(load, values)

        now = [one[at] for one in sums]
        store_results(sums, [at], self.reduction.reducer.step(now, values, read))

    def _write_result(self, sums: Sequence[Any], at: Expr | int, values: Values) -> None:
        results = [one[at] for one in sums]
        write_output(self.reduction.reducer.finals, self.last, results, values)

    def _sums(self, count: int) -> list[Any]:
        """Return a buffer for each result, which LLVM keeps in registers."""
        dtypes = [str(store.buffer.ty.dtype) for store in self.reduction.reducer.stores]
        return [T.sblock_alloc_buffer((count,), dtype, scope="local") for dtype in dtypes]

    def _list_axis_values(self, outer_index: Sequence[Expr], index: Expr) -> Values:
        """Return the value of each axis."""
        left = iter(outer_index)
        axes = self.reduction.axes
        return [(v, index if axis == self.axis else next(left)) for axis, v in enumerate(axes)]

    def _open_step_loops(
        self, steps: Sequence[Extent], values: Values
    ) -> AbstractContextManager[list[Expr]]:
        extents = (n if isinstance(n, int) else replace_variables(n, values) for n in steps)
        return open_loops(T.serial, extents, self._dtype)

    def _write_chain_loop(self) -> Iterator[Expr]:
        with open_loop(T.unroll, self.chains, self._dtype) as chain:
            yield chain

    @property
    def _dtype(self) -> str:
        return str([*self.reduction.axes, *self.reduction.sums][0].ty.dtype)


def buffers_of(reduction: Reduction, last: SBlock | None) -> tuple[list[Any], list[Any]]:
    """Return the buffers that the loops of a reduction read, and those that they write."""
    reducer = reduction.reducer
    written_buffers = [store.buffer for store in ([last.body] if last else reducer.finals)]
    totals = [store.buffer for store in (*reducer.stores, *reducer.finals)]
    values = [*reducer.values, *([last.body.value] if last else [])]
    values += [step for step in reduction.steps if not isinstance(step, int)]
    return list_read_buffers(values, totals), written_buffers
