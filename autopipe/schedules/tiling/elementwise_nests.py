"""Writes an elementwise block as loops over planes, rows and columns, with periods written out.

A block of dynamic sizes is written in vectors along its last axes, as no number of elements in a
vector divides a dynamic size. Template `elementwise` has the reasons, and examples.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes
from autopipe.schedules.analysis.blocks import (
    Extent,
    is_large_enough,
    lengths_of,
    number_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    open_loop,
    open_loops,
    replace_variables,
    unravel_index,
    write_branches,
    write_element_loops,
)
from autopipe.schedules.analysis.movement import AxisPiece, Movement, inline_into_last
from autopipe.schedules.analysis.simple_indices import LONGEST, find_period
from autopipe.schedules.loop_writer import job_loop, list_read_buffers, write_store
from autopipe.schedules.parallel_work import ELEMENTS, JOBS

_MAX_PERIOD_OUTPUTS: Final = 16
"""Most outputs of a period of rows and columns: code has to be compiled, and read."""

_PLANE: Final = 2
"""Fewest axes of planes: rows and columns."""


def is_in_steps(sch: Schedule, movement: Movement) -> bool:
    """Tell whether rows are read in steps or divided, with a period that can be written out."""
    if not movement.folded or len(movement.extents) < _PLANE:
        return False
    trial = sch.copy()
    block = trial.get(inline_into_last(trial))
    if not 0 < find_period(block.body.value, block.iter_vars[-1].var) <= LONGEST:
        return False
    last = len(movement.extents) - 1
    return any(read and _reads_in_steps(read, last) for read in movement.reads)


def _reads_in_steps(read: tuple[AxisPiece, ...], last: int) -> bool:
    """Tell whether a read along the last axis is strided, repeated, or has a short period."""
    pieces = sorted((piece for piece in read if piece.axis == last), key=lambda piece: piece.lower)
    if not pieces:
        return False
    first, *later_pieces = pieces
    return (
        first.lower > 1 or abs(first.stride) > 1 or (bool(later_pieces) and first.extent <= LONGEST)
    )


class PlaneNest:
    """Writes the loops of an elementwise block with two axes or more."""

    def __init__(self, block: SBlock, *, parallel: bool) -> None:
        self._block, self._parallel = block, parallel
        self._axes = [axis.var for axis in block.iter_vars]
        self._dtype = str(self._axes[-1].ty.dtype)
        self._extents = [int(axis.dom.extent) for axis in block.iter_vars]
        rows, columns = (self._find_period(axis) for axis in (-2, -1))
        self._periods = (rows if rows * columns <= _MAX_PERIOD_OUTPUTS else 1, columns)
        self._known = Analyzer()

    def write(self) -> tirx.Stmt:
        """Return the loops."""
        *planes, rows, _ = self._extents
        turns = -(-rows // self._periods[0])
        job_extents = planes if math.prod(planes) >= JOBS else [*planes, turns]
        name = f"{self._block.name_hint}_nest"
        buffers = list_read_buffers([self._value]), [self._block.body.buffer]
        with (
            IRBuilder() as builder,
            job_loop(name, job_extents, self._dtype, buffers, parallel=self._parallel) as place,
        ):
            for var, extent in zip(place, job_extents, strict=True):
                self._bind_range(var, extent)
            if len(place) > len(planes):
                self._rows(place[:-1], place[-1])
            else:
                with open_loop(T.serial, turns, self._dtype) as turn:
                    self._bind_range(turn, turns)
                    self._rows(place, turn)
        return builder.get()

    def _rows(self, plane: Sequence[Expr], turn: Expr) -> None:
        """Write a period of rows; the last one may lack some."""
        rows, step = self._extents[-2], self._periods[0]
        for number in range(step):
            row = turn * step + number
            if number >= (rows % step or step):
                with T.If(row < rows), T.Then():
                    self._row([*plane, row])
            else:
                self._row([*plane, row])

    def _row(self, at: Sequence[Expr]) -> None:
        columns, step = self._extents[-1], self._periods[1]
        with open_loop(T.serial, columns // step, self._dtype) as turn:
            self._bind_range(turn, columns // step)
            for number in range(step):
                self._write_element([*at, turn * step + number])
        for column in range(columns // step * step, columns):
            self._write_element([*at, number_of(column, self._dtype)])

    def _write_element(self, at: Sequence[Expr]) -> None:
        values = list(zip(self._axes, at, strict=True))
        value = self._known.simplify(replace_variables(self._value, values))
        T.buffer_store(self._block.body.buffer, value, list(at))

    @property
    def _value(self) -> Expr:
        return self._block.body.value

    def _find_period(self, axis: int) -> int:
        period = find_period(self._value, self._axes[axis])
        return period if 0 < period <= min(LONGEST, self._extents[axis]) else 1

    def _bind_range(self, var: Expr, extent: int) -> None:
        if isinstance(var, tirx.Var):
            self._known.bind(var, tvm.ir.Range(0, number_of(extent, self._dtype)))


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
                    index = [*outer, *unravel_index(lengths[first:], start + element)]
                    axes = [axis.var for axis in self.block.iter_vars]
                    write_store(self.block.body, list(zip(axes, index, strict=True)))
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
        name, store = self.block.name_hint, self.block.body
        buffers = list_read_buffers([store.value]), [store.buffer]
        with (
            job_loop(
                name, lengths[:shared_count], self._dtype, buffers, parallel=parallel
            ) as index,
            open_loops(T.serial, lengths[shared_count:], self._dtype) as inner,
        ):
            yield [*index, *inner]

    def _count_fused_axes(self) -> int:
        """Return how many last axes are written as one: only the first of them may be dynamic."""
        tail, movement = 1, self.movement
        while not movement.parts and tail < movement.tail and isinstance(self._lengths[-tail], int):
            tail += 1
        return tail

    @property
    def _dtype(self) -> str:
        return str(self.block.iter_vars[0].var.ty.dtype)
