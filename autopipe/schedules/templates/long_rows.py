"""Template for functions that reduce all of a long tensor to one number.

A single row gives other templates nothing to run in parallel. So it is split into pieces (rfactor),
each of which is reduced as a row of its own, and the partial results are reduced at the end. The
result has several blocks, whose parts other templates serve. As a row of template `rows`, on one
thread, the sum of [4096, 4096] takes 4.1 ms in place of 3.2.

Example: the sum of x [200704], in 16 pieces of 12544.

    for piece in parallel(16):
        partial[piece] = 0
        for step in range(12544):                     # in vectors, as `rows` has it
            partial[piece] += x[12544 * piece + step]
    y = partial[0] + partial[1] + ...
"""

import math
from typing import Final

from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import BufferStore

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import extents_of, is_spatial, is_static
from autopipe.schedules.analysis.rows import blocks_of, count_iterations
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.parallel_work import OPERATIONS
from autopipe.schedules.templates.sequence import (
    SequenceTemplate,
    ServedParts,
    inline_cheap_blocks,
    split_into_parts,
)

_PIECES: Final = 16
"""Maximum pieces of a row."""

_MIN_PIECES: Final = 4
"""Minimum number of pieces; rows without such a divisor are left to other templates."""

_EVEN_PIECE: Final = 64
"""Elements of four vectors of 512 bits: pieces of whole ones need no guarded remainder."""


class LongRowsTemplate(SequenceTemplate):
    """Reductions of a long tensor to one number, in pieces that run in parallel."""

    name = "long_rows"
    version = schedule_version("long_rows")

    def match(self, sch: Schedule) -> ServedParts | None:
        """Match a function, split into parts after its long rows are cut; None if it has none."""
        trial = sch.copy()
        long_blocks = [rv for rv in blocks_of(trial) if _is_long(trial.get(rv))]
        if not long_blocks or not all(_rfactor_row(trial, rv) for rv in long_blocks):
            return None
        return split_into_parts(inline_cheap_blocks(trial).mod["main"])


LONG_ROWS: Final = LongRowsTemplate()


def _is_long(block: SBlock) -> bool:
    """Tell whether a block reduces at least `OPERATIONS` elements to one number."""
    if is_spatial(block) or not is_static(block) or not isinstance(block.body, BufferStore):
        return False
    return max(extents_of(block), default=1) == 1 and count_iterations(block) >= OPERATIONS


def _rfactor_row(sch: Schedule, rv: SBlockRV) -> bool:
    """Split the reduction of a row into pieces; tell whether that is possible.

    Where the outermost reduction axis has a divisor, a piece is some of its steps. Else all
    reduction axes are fused first.
    """
    block = sch.get(rv)
    spatial, reduction_extents = len(extents_of(block)), extents_of(block, spatial=False)
    loops = sch.get_loops(rv)[spatial:]
    pieces = _choose_piece_count(reduction_extents[0], math.prod(reduction_extents[1:]))
    row = loops[0] if pieces else sch.fuse(*loops)
    pieces = pieces or _choose_piece_count(math.prod(reduction_extents))
    if not pieces:
        return False
    try:
        piece, _ = sch.split(row, [pieces, None])
        sch.rfactor(piece, spatial)
    except ScheduleError:  # not a commutative reducer that TVM knows
        return False
    return True


def _choose_piece_count(extent: int, inner: int = 1) -> int:
    """Choose the largest number of pieces of whole vectors that divides the steps evenly.

    Each step has `inner` elements. 0 if the pieces would be too few. Example: 255744 elements are
    12 pieces of 333 x 64, not 16 of 15984.
    """
    counts = list_divisors(extent, _PIECES)
    even_counts = [pieces for pieces in counts if extent // pieces * inner % _EVEN_PIECE == 0]
    most = max(even_counts, default=0)
    return most if most >= _MIN_PIECES else 0
