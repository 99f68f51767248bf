"""Engine `serial`: the loops of `default` without threads, which every winner has to beat.

Waking threads costs some microseconds, more than many a gather or pooling takes as a whole.
"""

import json
from typing import Final

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default
from autopipe.schedules.planned import Planned
from autopipe.schedules.replay import apply

_THREADS: Final = "Parallel"
"""The instruction of a trace that makes threads; nothing follows from it."""


def plan(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule, or None where there is none: on a GPU, or for TIR without blocks."""
    planned = None if conditions.hardware.gpu else default.plan(module, conditions)
    if planned is None:
        return None
    instructions, decisions = json.loads(planned.schedule)
    kept = [each for each in instructions if each[0] != _THREADS]
    if len(kept) == len(instructions):
        return planned
    trace = json.dumps([kept, decisions])
    return Planned(planned.implementation, trace, apply(module, trace).mod)
