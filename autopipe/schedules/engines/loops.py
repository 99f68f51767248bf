"""Engines `loops` and `parallel_loops`: a function's loops as lowered, which winners must beat.

Templates and `default` write vectors. Where loads have no constant stride, as at clamped or
circular indices, TVM loads elements one by one, and LLVM is faster on the loops.
"""

from typing import Final

import tvm
from tvm.s_tir import Schedule, ScheduleError

from autopipe.schedules.analysis.blocks import SPATIAL, is_static
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.planned import Planned
from autopipe.schedules.replay import dump_trace

NO_STEPS: Final = "[[], []]"
"""The trace of a schedule that does nothing."""


def as_declared(module: tvm.IRModule) -> Planned:
    """Return an unscheduled function, with the empty trace."""
    return Planned(DIRECT, NO_STEPS, module)


def plan(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the unscheduled loops on one thread, or None on a GPU."""
    return as_declared(module) if conditions.hardware.backend.runs_unscheduled_loops else None


def plan_parallel(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Run the outermost loop of each block in parallel; None if none can be."""
    if not conditions.hardware.backend.runs_unscheduled_loops:
        return None
    sch = Schedule(module, debug_mask="none", error_render_level="none")
    try:
        parallel_loops = [
            _parallelize_block(sch, block) for block in sch.get_child_blocks(sch.get_sblock("root"))
        ]
    except RuntimeError:  # TIR without blocks; ScheduleError is one
        return None
    return Planned(DIRECT, dump_trace(sch.trace), sch.mod) if any(parallel_loops) else None


def _parallelize_block(sch: Schedule, block: tvm.s_tir.schedule.SBlockRV) -> bool:
    """Run the outermost loop of a block in parallel; tell whether that is possible."""
    loops, axes = sch.get_loops(block), sch.get(block).iter_vars
    if not loops or len(loops) != len(axes) or axes[0].iter_type != SPATIAL:
        return False
    if not is_static(sch.get(block)):
        return False
    try:
        sch.parallel(loops[0])
    except ScheduleError:
        return False
    return True
