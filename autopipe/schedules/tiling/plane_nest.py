"""Writes an elementwise block as loops over planes, rows and columns, with periods written out.

Template `elementwise` has the reason and an example.
"""

import math
from collections.abc import Sequence
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock, Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import open_loop, replace_variables
from autopipe.schedules.analysis.movement import AxisPiece, Movement, inline_into_last
from autopipe.schedules.analysis.periods import LONGEST, find_period
from autopipe.schedules.loop_writer import job_loop
from autopipe.schedules.parallel_work import JOBS

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
        name, read = (
            f"{self._block.name_hint}_nest",
            [one.source for one in list_loads(self._value)],
        )
        buffers = read, [self._block.body.buffer]
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
