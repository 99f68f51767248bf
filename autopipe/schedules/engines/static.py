"""Engine `static`: the schedule of a template whose knobs are filled from hardware parameters.

Nothing is measured. It replaces TOPI's schedules with fallback values. After the RFC
"Auto-Schedule from Compute Declaration": classify the computation, then fill a template from coarse
parameters of the machine.
"""

from collections.abc import Iterator

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Planned
from autopipe.schedules.implementations.implementation import (
    DIRECT,
    build_implementations,
    list_allowed,
)
from autopipe.schedules.templates.serve import Complaint, serve
from autopipe.schedules.templates.template import dump


def plan(workload: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the best estimated implementation, or None if there is none."""
    return next(list_plans(workload, conditions), None)


def list_plans(workload: tvm.IRModule, conditions: Conditions) -> Iterator[Planned]:
    """Yield a schedule for each implementation that a template serves, the best estimated first."""
    modules = build_implementations(workload, conditions)
    gains = {DIRECT: 1.0}
    for implementation in list_allowed(conditions) if len(modules) > 1 else ():
        if implementation.NAME in modules:
            gains[implementation.NAME] = implementation.gain(workload, conditions.hardware)
    for name in sorted(modules, key=lambda name: -gains[name]):
        plan = plan_implementation(name, modules[name], conditions)
        if plan is not None:
            yield plan


def plan_implementation(
    name: str, body: tvm.IRModule, conditions: Conditions, *complaint: Complaint
) -> Planned | None:
    """Schedule an implementation by the first template that serves it; None if none does.

    `name` is that of the implementation, `body` its module.
    """
    served = serve(body, conditions.hardware, *complaint)
    if served is None:
        return None
    return Planned(name, dump(served.template, served.knobs), served.schedule.mod)
