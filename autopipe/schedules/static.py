"""Engine `static`: a template's schedule at once, its knobs filled from hardware parameters.

It takes the place of "TOPI schedule with fallback values". After the RFC "Auto-Schedule from
Compute Declaration": classify the computation, then fill a template from coarse facts about the
machine.
"""

from collections.abc import Iterator

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.implementation import DIRECT, implementations
from autopipe.schedules.implementations import rewrites
from autopipe.schedules.planned import Planned
from autopipe.schedules.serving import serve
from autopipe.schedules.template import dump


def plan(workload: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the implementation that promises most, or None if none has any."""
    return next(plans(workload, conditions), None)


def plans(workload: tvm.IRModule, conditions: Conditions) -> Iterator[Planned]:
    """Yield a schedule for each implementation that a template serves, the most promising first."""
    every = implementations(workload, conditions)
    gains = {DIRECT: 1.0}
    for each in rewrites() if len(every) > 1 else ():
        if each.NAME in every:
            gains[each.NAME] = each.gain(workload, conditions.hardware)
    for name in sorted(every, key=lambda name: -gains[name]):
        served = serve(every[name], conditions.hardware)
        if served is not None:
            schedule = dump(served.template, served.knobs)
            yield Planned(name, schedule, served.schedule.mod)
