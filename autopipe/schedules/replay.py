"""From a recorded trace back to a scheduled module."""

import json

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from autopipe.errors import StageError


def dump(trace: Trace) -> str:
    """Write a trace as JSON."""
    return json.dumps(trace.as_json(), default=lambda number: number.value)


def apply(module: tvm.IRModule, trace: str) -> Schedule:
    """Apply a trace to the unscheduled module it was recorded on; return the schedule.

    Raises StageError if the trace does not apply.
    """
    schedule = Schedule(module, debug_mask="none", error_render_level="fast")
    try:
        Trace.apply_json_to_schedule(json.loads(trace), schedule)
    except (RuntimeError, ValueError, TypeError, LookupError) as error:  # all that TVM raises
        reason = " ".join(str(error).strip().splitlines()[:1])
        raise StageError(f"the trace does not fit this workload: {reason}") from None
    return schedule


def replay(module: tvm.IRModule, trace: str) -> tvm.IRModule:
    """Return the module that a trace makes of an unscheduled one; raises as `apply`."""
    return apply(module, trace).mod
