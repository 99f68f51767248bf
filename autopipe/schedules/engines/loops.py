"""Engines `loops`, `parallel_loops` and `serial`: the baselines, which winners must beat.

The first two are a function's loops as lowered, the third those of `default` without threads.
Starting threads takes some microseconds, which is more than many gathers or poolings take.

Templates and `default` write vectors. Where loads have no constant stride, as at clamped or
circular indices, TVM loads elements one by one, and LLVM is faster on the loops.
"""

import json
from typing import Final

import tvm
from tvm.s_tir import Schedule, ScheduleError

from autopipe.schedules.analysis.blocks import SPATIAL, is_static
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default
from autopipe.schedules.engines.engine import Planned
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.replay import apply_trace, dump_trace

NO_STEPS: Final = "[[], []]"
"""The trace of a schedule that does nothing."""

_THREADS: Final = "Parallel"
"""The instruction of a trace that makes a loop parallel; no other instruction depends on it."""


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


def plan_serial(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the serial schedule, or None on a GPU and for TIR without blocks."""
    unbound = conditions.hardware.backend.runs_unscheduled_loops
    threaded_plan = default.plan(module, conditions) if unbound else None
    if threaded_plan is None:
        return None
    instructions, decisions = json.loads(threaded_plan.schedule)
    serial_instructions = [
        instruction for instruction in instructions if instruction[0] != _THREADS
    ]
    if len(serial_instructions) == len(instructions):
        return threaded_plan
    trace = json.dumps([serial_instructions, decisions])
    return Planned(threaded_plan.implementation, trace, apply_trace(module, trace).mod)


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
