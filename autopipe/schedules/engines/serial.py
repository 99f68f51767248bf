"""Engine `serial`: the loops of `default` without threads, a baseline of every winner.

Starting threads takes some microseconds, which is more than many gathers or poolings take.
"""

import json
from typing import Final

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default
from autopipe.schedules.planned import Planned
from autopipe.schedules.replay import apply_trace

_THREADS: Final = "Parallel"
"""The instruction of a trace that makes a loop parallel; no other instruction depends on it."""


def plan(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
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
