"""Template for reductions along rows whose length is no multiple of a vector, or of functions.

What template `row_reduction` does with primitives of TVM, which leave the other steps of such a row
to LLVM and guard the rest of a reduction, this writes as `open_rows` does: whole vectors, then
shorter ones. Where a softmax or its like sums what functions are of a row, this is for rows of any
length: it sums as it computes, and fewer partial results leave registers to the function.

Example: each row of x [128, 513] without its mean, in vectors of 16.

    for row in parallel(128):
        partial[0:16] = 0
        for step in range(32):
            partial[0:16] += x[row, 16 * step : 16 * step + 16]
        partial[0] += x[row, 512]
        sum = ((partial[0] + partial[1]) + ...)       # halves of vectors first
        for step in range(32):
            y[row, 16 * step : 16 * step + 16] = x[row, 16 * step : 16 * step + 16] - sum / 513
        y[row, 512] = x[row, 512] - sum / 513
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from tvm.s_tir import SBlock, Schedule

from autopipe.schedules.analysis.blocks import extents_of, is_spatial
from autopipe.schedules.analysis.rows import blocks_of, cost, count
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates import open_rows, row_reduction
from autopipe.schedules.templates.open_rows import OpenRows, RowVectors

NAME: Final = "odd_rows"
VERSION: Final = 1

_VECTOR: Final = 8
"""Elements by which a row is divided where `row_reduction` makes vectors of all of it."""

_LONG: Final = 1024
"""Elements of a row from which on `row_reduction` takes as many vectors as hide latency, and guards
what is left over: LLVM makes no vectors of that loop where indices have 64 bits."""
_WHOLE: Final = 64
"""Elements of so many vectors of 512 bits."""

_LEAST: Final = 32
"""Elements of the shortest row that pays."""


def match(sch: Schedule) -> OpenRows | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    blocks = [sch.get(rv) for rv in blocks_of(sch)]
    if not any(map(_is_odd, blocks)) and not _sums_functions(blocks):
        return None
    reduction = row_reduction.match(sch)
    if reduction is None or reduction.row < _LEAST:
        return None
    return open_rows.match(sch) if len(blocks_of(sch)) > 1 else None


def _is_odd(block: SBlock) -> bool:
    """Tell whether a block reduces rows of such a length; that is soon told."""
    row = math.prod(extents_of(block, spatial=False))
    return (row >= _LEAST and row % _VECTOR > 0) or (row >= _LONG and row % _WHOLE > 0)


def _sums_functions(blocks: Sequence[SBlock]) -> bool:
    """Tell whether a row of elementary functions, such as exp, is computed and then reduced."""
    last = max((at for at, block in enumerate(blocks) if not is_spatial(block)), default=-1)
    return any(count(block) > _LEAST and cost(block) > 1 for block in blocks[: last + 1])


def settings(found: OpenRows, hardware: HardwareParams) -> Iterator[RowVectors]:
    """Yield the vectors of one to four registers."""
    lanes = hardware.lanes(found.bits)
    yield from (RowVectors(count * lanes) for count in (2, 1, 4))


def fill(found: OpenRows, hardware: HardwareParams) -> RowVectors:
    """Return the knobs for a processor, without measuring."""
    return next(settings(found, hardware))


def apply(sch: Schedule, found: OpenRows, knobs: RowVectors) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    open_rows.write(sch, found, knobs.width, None)
