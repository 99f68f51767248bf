"""Whether what a block computes is chosen by where it is."""

from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock
from tvm_ffi import structural_walk

from autopipe.schedules.analysis.expressions import loads_of, occurrences

_BRANCH: Final = "prim.if_then_else"


def chooses_by_place(block: SBlock) -> bool:
    """Tell whether a branch of a reduction goes by a place along it, as in `k <= i`.

    `loop_partition` of TVM 0.27 cuts a loop at such a condition, too, beside the end of the row
    that it is asked for, and counts elements twice where the two cuts meet: the lower triangle
    of [41, 43], summed by rows in vectors of 8, had element [40, 40] twice. A condition on what is
    read at the place, as `mask[i, k]`, can not be cut at, and does no harm.
    """
    reduced = [axis.var for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
    selects: list[tirx.Select] = []
    calls: list[Call] = []
    structural_walk(block.body, (tirx.Select, selects.append))
    structural_walk(block.body, (Call, calls.append))
    found = [select.condition for select in selects]
    found += [call.args[0] for call in calls if getattr(call.op, "name", "") == _BRANCH]
    return any(_goes_by(condition, var) for condition in found for var in reduced)


def _goes_by(condition: tvm.ir.Expr, var: tvm.ir.Var) -> bool:
    """Tell whether a condition mentions a variable outside the indices of what it reads."""
    read = sum(occurrences(at, var) for load in loads_of(condition) for at in load.indices)
    return occurrences(condition, var) != read
