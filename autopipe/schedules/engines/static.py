"""Engine `static`: a template's schedule at once, its knobs filled from hardware parameters.

It takes the place of "TOPI schedule with fallback values". After the RFC "Auto-Schedule from
Compute Declaration": classify the computation, then fill a template from coarse facts about the
machine.
"""

from collections.abc import Iterator

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.implementations.implementation import DIRECT, allowed, implementations
from autopipe.schedules.planned import Planned
from autopipe.schedules.templates.serve import Complaint, serve
from autopipe.schedules.templates.template import dump


def plan(workload: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the implementation that promises most, or None if none has any."""
    return next(plans(workload, conditions), None)


def plans(workload: tvm.IRModule, conditions: Conditions) -> Iterator[Planned]:
    """Yield a schedule for each implementation that a template serves, the most promising first."""
    every = implementations(workload, conditions)
    gains = {DIRECT: 1.0}
    for each in allowed(conditions) if len(every) > 1 else ():
        if each.NAME in every:
            gains[each.NAME] = each.gain(workload, conditions.hardware)
    for name in sorted(every, key=lambda name: -gains[name]):
        planned = plan_of(name, every[name], conditions)
        if planned is not None:
            yield planned


def plan_of(
    name: str, body: tvm.IRModule, conditions: Conditions, *complaint: Complaint
) -> Planned | None:
    """Return the schedule of the implementation of that name, or None if no template serves it."""
    served = serve(body, conditions.hardware, *complaint)
    if served is None:
        return None
    return Planned(name, dump(served.template, served.knobs), served.schedule.mod)
