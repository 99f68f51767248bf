"""Splits loops where a condition changes its value, so that it is constant in each part.

Example: a border of 3 around rows of 224 pixels, with channels last.

    for x, c in grid(230, 3):                # before: a branch for each element
        out[x, c] = in[c, x - 3] if 3 <= x < 227 else 0

    for x, c in grid(3, 3):                  # after: three loops, two of which load nothing
        out[x, c] = 0
    for x, c in grid(224, 3):                # and one that LLVM vectorizes
        out[x + 3, c] = in[c, x]
    for x, c in grid(3, 3):
        out[x + 227, c] = 0
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import tvm_ffi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV
from tvm.tirx import For, stmt_seq

from autopipe.compiler.loops.copy_loops import copy_loop_nest
from autopipe.schedules.primitives import rewrite_function

_MOST_COPIES: Final = 256
"""Most iterations of a loop that is unrolled to make conditions constant."""


def unroll_parts(sch: Schedule, loop: LoopRV, parts: Sequence[int]) -> None:
    """Unroll a loop so far that conditions are constant in the inner loop.

    `parts` are the extents between conditions: (32, 64) needs 3 parts of 32. TVM's own
    `loop_partition` defines the same variables twice, which its passes refuse.
    """
    sch.unroll(sch.split(loop, [None, math.gcd(*parts)])[0])


def can_unroll(parts: Sequence[int]) -> bool:
    """Tell whether there are conditions, and at most 256 copies of a loop make them constant."""
    return bool(parts) and sum(parts) // math.gcd(*parts) <= _MOST_COPIES


def split_into_parts(sch: Schedule, loop: LoopRV, parts: Sequence[int]) -> None:
    """Write a loop once for each part, so that conditions are constant in each.

    `parts` are the extents between conditions: (3, 224, 3) makes three loops, of 0 to 3, 3 to 227
    and 227 to 230.
    """
    old_loop = sch.get(loop)
    starts = accumulate(parts[:-1], initial=0)
    loops = [
        copy_loop_nest(For(old_loop.loop_var, start, part, old_loop.kind, old_loop.body))
        for start, part in zip(starts, parts, strict=True)
    ]
    body = tvm_ffi.structural_map(
        sch.get(sch.get_sblock("root")).body,
        (For, lambda one: stmt_seq(*loops) if one.same_as(old_loop) else one),
    )
    rewrite_function(sch, body)
