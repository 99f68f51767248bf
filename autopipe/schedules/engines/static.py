"""Engine `static`: the schedule of a template whose knobs are filled from hardware parameters.

Nothing is measured. It takes the place of TOPI's schedules with fallback values. After the RFC
"Auto-Schedule from Compute Declaration": classify the computation, then fill a template from coarse
parameters of the machine.
"""

from collections.abc import Iterator

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.implementations.implementation import (
    DIRECT,
    build_implementations,
    list_allowed,
)
from autopipe.schedules.planned import Planned
from autopipe.schedules.templates.serve import Complaint, serve
from autopipe.schedules.templates.template import dump


def plan(workload: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the most promising implementation, or None if there is none."""
    return next(list_plans(workload, conditions), None)


def list_plans(workload: tvm.IRModule, conditions: Conditions) -> Iterator[Planned]:
    """Yield a schedule for each implementation that a template serves, the most promising first."""
    modules = build_implementations(workload, conditions)
    gains = {DIRECT: 1.0}
    for implementation in list_allowed(conditions) if len(modules) > 1 else ():
        if implementation.NAME in modules:
            gains[implementation.NAME] = implementation.gain(workload, conditions.hardware)
    for name in sorted(modules, key=lambda name: -gains[name]):
        planned = plan_implementation(name, modules[name], conditions)
        if planned is not None:
            yield planned


def plan_implementation(
    name: str, body: tvm.IRModule, conditions: Conditions, *complaint: Complaint
) -> Planned | None:
    """Return the schedule of an implementation, or None if no template serves it.

    `name` is that of the implementation, `body` its module.
    """
    served = serve(body, conditions.hardware, *complaint)
    if served is None:
        return None
    return Planned(name, dump(served.template, served.knobs), served.schedule.mod)
