"""Replays a recorded schedule: a trace of TVM, or the knobs of a template."""

import json
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.errors import StageError
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.guarded import guard_parallel_loops
from autopipe.schedules.implementations.implementation import build_implementation
from autopipe.schedules.templates import list_templates
from autopipe.schedules.templates.template import replay_setting
from autopipe.traces.reading import Forbidden, check_schedule, read_trace

_REFUSALS = (RuntimeError, ValueError, TypeError, LookupError)
"""All exceptions that TVM raises for a schedule that does not fit."""


def dump_trace(trace: Trace) -> str:
    """Write a trace as JSON."""
    return json.dumps(trace.as_json(), default=lambda number: number.value)


def apply_trace(module: tvm.IRModule, trace: str) -> Schedule:
    """Apply a trace to the unscheduled module it was recorded on.

    Raises StageError if the trace does not apply, and Forbidden if it may do harm.
    """
    steps = read_trace(trace).json()
    schedule = Schedule(module, debug_mask="none", error_render_level="fast")
    try:
        Trace.apply_json_to_schedule(steps, schedule)
    except _REFUSALS as error:
        reason = " ".join(str(error).strip().splitlines()[:1])
        raise StageError(f"the trace does not fit this workload: {reason}") from None
    if _list_parameters(schedule.mod) != _list_parameters(module):
        raise Forbidden(
            "the trace changes the parameters of the workload; accesses could be out of bounds"
        )
    guard_parallel_loops(schedule)
    return schedule


def _list_parameters(module: tvm.IRModule) -> list[tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of each parameter of `main`."""
    return [(str(p.dtype), tuple(map(int, p.shape))) for p in module["main"].params]


def replay_schedule(
    workload: tvm.IRModule, implementation: str, schedule: str, conditions: Conditions
) -> tvm.IRModule:
    """Apply a record to an unscheduled workload; return the scheduled module.

    Raises StageError if the record does not fit: there is no such implementation or template here,
    or another version of it, the knobs are none of its settings, or the trace does not apply.
    Raises Forbidden if the record may do harm.
    """
    module = build_implementation(workload, implementation, conditions)
    if module is None:
        raise StageError(
            f"this workload has no implementation {format_value(repr(implementation))} here"
        )
    return apply_schedule(module, schedule, conditions)


def apply_schedule(module: tvm.IRModule, schedule: str, conditions: Conditions) -> tvm.IRModule:
    """Apply a record to an implementation, which was built before. Raises as `replay_schedule`."""
    check_schedule(schedule)
    document = foreign.parse(schedule)
    if isinstance(document, dict):
        return _replay_knobs(module, document, conditions)
    return apply_trace(module, schedule).mod


def _replay_knobs(
    module: tvm.IRModule, document: dict[str, Any], conditions: Conditions
) -> tvm.IRModule:
    """Apply a template with the knobs of a record."""
    name = document.get("template")
    template = next((template for template in list_templates() if name == template.name), None)
    if template is None:
        raise StageError(f"there is no template {format_value(repr(name))}")
    try:
        return replay_setting(module, template, document, conditions.hardware).mod
    except _REFUSALS as error:
        raise StageError(f"template {name} does not fit this workload: {error}") from None
