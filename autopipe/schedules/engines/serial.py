"""Engine `serial`: the loops of `default` without threads, which every winner has to beat.

To start threads costs some microseconds, which is more than many gathers or poolings take.
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
    """Return the schedule, or None where there is none: on a GPU, or for TIR without blocks."""
    unbound = conditions.hardware.backend.runs_unscheduled_loops
    planned = default.plan(module, conditions) if unbound else None
    if planned is None:
        return None
    instructions, decisions = json.loads(planned.schedule)
    serial_instructions = [
        instruction for instruction in instructions if instruction[0] != _THREADS
    ]
    if len(serial_instructions) == len(instructions):
        return planned
    trace = json.dumps([serial_instructions, decisions])
    return Planned(planned.implementation, trace, apply_trace(module, trace).mod)
