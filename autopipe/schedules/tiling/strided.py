"""Loads strided operands of neighbouring outputs as whole vectors, and shuffles these.

A step of a window reads every second element of a row, say. All of these elements are in two
vectors that the step beside it reads, too. No element is read that no step uses.

Example: steps 0 to 2 of the largest of 3 neighbours at every second place, 8 outputs at a time.

    low, high   = x[0:8], x[8:16]
    step[0]     = low[0, 2, 4, 6], high[0, 2, 4, 6]
    step[1]     = low[1, 3, 5, 7], high[1, 3, 5, 7]
    low, high   = x[2:10], x[9:17]                   # x[17] is no step's
    step[2]     = low[0, 2, 4, 6], high[1, 3, 5, 7]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.expressions import Values, count_occurrences, replace_variables
from autopipe.schedules.analysis.reduction import Reduction

FARTHEST: Final = 4
"""Most elements between neighbours that are read as whole vectors."""


def find_row_strides(reduction: Reduction) -> list[int] | None:
    """Return each operand's stride between neighbouring outputs, in elements of its last axis.

    None where a stride is not constant or exceeds `FARTHEST`, or is along another axis.
    """
    row, strides = reduction.axes[-1], []
    for load in reduction.loads:
        *outer, last = load.indices
        linear = detect_linear_equation(last, [row])
        if any(count_occurrences(index, row) for index in outer) or len(linear) == 0:
            return None
        if not isinstance(linear[0], tirx.IntImm) or not 0 <= int(linear[0]) <= FARTHEST:
            return None
        if int(linear[0]) > 1 and any(
            count_occurrences(linear[-1], axis) for axis in reduction.axes
        ):
            return None
        strides.append(int(linear[0]))
    return strides


@dataclass(frozen=True, slots=True)
class ApartRead:
    """The elements of one operand that a vector of outputs reads in one step."""

    outer: tuple[Expr, ...]
    """The indices but for the last one."""
    offset: int
    """Elements from `stride` times the place of an output to its element."""
    room: Any
    """The buffer of one vector that receives the elements."""


def deinterleave_reads(
    source: tvm.ir.Var, reads: Sequence[ApartRead], first: Expr, stride: int, width: int
) -> None:
    """Gather elements `stride` apart into vectors, for `width` outputs from `first` on.

    `reads` are those of all steps. An IRBuilder must be open.
    """
    for outer in dict.fromkeys(str(read.outer) for read in reads):
        row = sorted((one for one in reads if str(one.outer) == outer), key=lambda one: one.offset)
        while row:
            base = row[0].offset
            group = [one for one in row if one.offset < base + stride]
            row = row[len(group) :]
            _shuffle_group(source, group, first, stride, width)


def _shuffle_group(
    source: tvm.ir.Var, group: Sequence[ApartRead], first: Expr, stride: int, width: int
) -> None:
    """Write the loads and shuffles of reads that share vectors."""
    base = group[0].offset
    length = group[-1].offset - base + stride * (width - 1) + 1
    starts = [min(k * width, length - width) for k in range(-(-length // width))]
    at = first * stride + base
    parts = [T.Bind(source[(*group[0].outer, tirx.Ramp(at + start, 1, width))]) for start in starts]
    for read in group:
        places = [read.offset - base + stride * lane for lane in range(width)]
        part_numbers = [min(place // width, len(starts) - 1) for place in places]
        lanes = [
            tirx.const(one * width + place - starts[one], "int32")
            for one, place in zip(part_numbers, places, strict=True)
        ]
        zero = tirx.const(0, str(first.ty.dtype))
        T.buffer_store(read.room, tirx.Shuffle(parts, lanes), [tirx.Ramp(zero, 1, width)])


def locate_read(load: TensorLoad, values: Values, room: tvm.ir.Var) -> ApartRead:
    """Return the read of a load for `values` of all axes; 0 for that of the row."""
    *outer, last = (Analyzer().simplify(replace_variables(index, values)) for index in load.indices)
    return ApartRead(tuple(outer), int(last), room)
