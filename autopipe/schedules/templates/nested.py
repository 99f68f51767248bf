"""Template for rows that are read in steps, or divided: nested loops, with a period written out.

It serves dilations, repeats, enlarged images, space to depth and the like. A row index that is
taken apart again for each row costs as much as a short row does. And where an index is divided
along a row, no vector is made. Where a period of outputs is written out, divisions and the
conditions on their rests fall away; LLVM stores what is interleaved.

Example: y[c, i, j] = x[c, i // 2, j // 2] if i % 2 == 0 and j % 2 == 0 else 0, of [64, 111, 111].

    for c in parallel(64):
        for i in range(56):
            for j in range(55):
                y[c, 2 * i, 2 * j], y[c, 2 * i, 2 * j + 1] = x[c, i, j], 0
            y[c, 2 * i, 110] = x[c, i, 55]
            if 2 * i + 1 < 111:
                for j in range(55): ...                      # zeros
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import SBlock, Schedule

from autopipe.schedules.analysis.movement import AxisPiece, Movement, combined, recognize
from autopipe.schedules.analysis.periods import LONGEST, period
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.tiling.plane_nest import PlaneNest

NAME: Final = "nested"
VERSION: Final = 1

_PLANE: Final = 2
"""Fewest axes: rows and columns."""


@dataclass(frozen=True, slots=True)
class NestedRows:
    """The knobs."""

    threads: bool
    """Whether threads share the planes, or the rows of few planes."""


def match(sch: Schedule) -> Movement | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    movement = recognize(sch)
    if movement is None or not movement.folded or len(movement.extents) < _PLANE:
        return None
    trial = sch.copy()
    block = trial.get(combined(trial))
    if not 0 < period(block.body.value, block.iter_vars[-1].var) <= LONGEST:
        return None
    last = len(movement.extents) - 1
    in_steps = any(read and _in_steps(read, last) for read in movement.reads)
    return movement if in_steps else None


def settings(movement: Movement, hardware: HardwareParams) -> Iterator[NestedRows]:  # noqa: ARG001
    """Yield all threads, and one."""
    yield NestedRows(threads=True)
    yield NestedRows(threads=False)


def fill(movement: Movement, hardware: HardwareParams) -> NestedRows:
    """Return the knobs for a processor, without measuring."""
    return NestedRows(threads=movement.effort.pays(math.prod(movement.extents), hardware))


def apply(sch: Schedule, movement: Movement, nest: NestedRows) -> None:  # noqa: ARG001
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    old, here = sch.get(combined(sch)), sch.get_sblock("root")
    root = sch.get(here)
    body = PlaneNest(old, parallel=nest.threads).write()
    new = SBlock([], [], [], root.name_hint, body, annotations=root.annotations)
    sch.state.replace(sch.get_sref(here), new, {root: new})


def _in_steps(read: tuple[AxisPiece, ...], last: int) -> bool:
    """Tell whether neighbours along the last axis are read apart, more than once, or in few."""
    pieces = sorted((piece for piece in read if piece.axis == last), key=lambda piece: piece.lower)
    if not pieces:
        return False
    first, *others = pieces
    return first.lower > 1 or abs(first.stride) > 1 or (bool(others) and first.extent <= LONGEST)
