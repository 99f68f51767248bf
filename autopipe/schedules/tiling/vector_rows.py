"""Writes an elementwise block of dynamic sizes in vectors along its last axes.

No number of elements in a vector divides a dynamic size. Template `elementwise` has an example.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes
from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import (
    Extent,
    is_large_enough,
    lengths_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    open_loop,
    replace_variables,
    unravel_index,
    write_branches,
    write_element_loops,
)
from autopipe.schedules.analysis.movement import Movement
from autopipe.schedules.loop_writer import job_loop
from autopipe.schedules.parallel_work import ELEMENTS, JOBS


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Writes the loops around the only statement of a function."""

    block: SBlock
    movement: Movement
    """At specialized sizes."""
    width: int
    """Elements of a vector."""
    known: DynamicSizes | None

    def write(self) -> tirx.Stmt:
        """Return the loops. Raises ScheduleError where a condition divides a dynamic axis."""
        with IRBuilder() as builder:
            for parallel in write_branches(is_large_enough(self._lengths, ELEMENTS, self.known)):
                self._write_rows(parallel=parallel)
        return builder.get()

    @property
    def _lengths(self) -> tuple[Extent, ...]:
        return lengths_of(self.block)

    def _write_rows(self, *, parallel: bool) -> None:
        """Write vectors along the last axes, inside of loops over the first ones."""
        lengths, first = self._lengths, len(self._lengths) - self._count_fused_axes()
        parts: tuple[Extent, ...] = self.movement.parts
        if parts and not isinstance(lengths[-1], int):
            raise ScheduleError("a condition divides a dynamic axis")
        with self._write_outer_loops(lengths[:first], parallel=parallel) as outer:
            start: Extent = 0
            for part in parts or (product_of(lengths[first:]),):
                for element in write_element_loops(part, self.width, self._dtype):
                    self._write_store([*outer, *unravel_index(lengths[first:], start + element)])
                start += part

    @contextmanager
    def _write_outer_loops(
        self, lengths: Sequence[Extent], *, parallel: bool
    ) -> Iterator[list[Expr]]:
        """Write loops over the first axes, which threads share until they are enough."""
        shared_count = 0
        while (
            shared_count < len(lengths) and math.prod(self.movement.extents[:shared_count]) < JOBS
        ):
            shared_count += 1
        name, read = self.block.name_hint, [one.source for one in list_loads(self.block.body.value)]
        buffers = read, [self.block.body.buffer]
        jobs = job_loop(name, lengths[:shared_count], self._dtype, buffers, parallel=parallel)
        with ExitStack() as loops:
            index = loops.enter_context(jobs)
            inner = [open_loop(T.serial, n, self._dtype) for n in lengths[shared_count:]]
            yield [*index, *map(loops.enter_context, inner)]

    def _write_store(self, index: Sequence[Expr]) -> None:
        """Write the statement for one place."""
        store, axes = self.block.body, [axis.var for axis in self.block.iter_vars]
        values = list(zip(axes, index, strict=True))
        at = [replace_variables(place, values) for place in store.indices]
        T.buffer_store(store.buffer, replace_variables(store.value, values), at)

    def _count_fused_axes(self) -> int:
        """Return how many last axes are written as one: only the first of them may be dynamic."""
        tail, movement = 1, self.movement
        while not movement.parts and tail < movement.tail and isinstance(self._lengths[-tail], int):
            tail += 1
        return tail

    @property
    def _dtype(self) -> str:
        return str(self.block.iter_vars[0].var.ty.dtype)
