"""Engine `static`: a template's schedule at once, its knobs filled from hardware parameters.

It takes the place of "TOPI schedule with fallback values". After the RFC "Auto-Schedule from
Compute Declaration": classify the computation, then fill a template from coarse facts about the
machine.
"""

from collections.abc import Iterator

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.implementation import DIRECT, implementations
from autopipe.schedules.implementations import IMPLEMENTATIONS
from autopipe.schedules.planned import Planned
from autopipe.schedules.template import blank, dump
from autopipe.schedules.templates import TEMPLATES


def plan(workload: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the implementation that promises most, or None if none has any."""
    return next(plans(workload, conditions), None)


def plans(workload: tvm.IRModule, conditions: Conditions) -> Iterator[Planned]:
    """Yield a schedule for each implementation that a template serves, the most promising first."""
    gains = {DIRECT: 1.0}
    for implementation in IMPLEMENTATIONS:
        gains[implementation.NAME] = implementation.gain(workload, conditions.hardware)
    every = implementations(workload, conditions)
    for name in sorted(every, key=lambda name: -gains[name]):
        planned = _fill(name, every[name], conditions.hardware)
        if planned is not None:
            yield planned


def _fill(implementation: str, module: tvm.IRModule, hardware: Hardware) -> Planned | None:
    """Return the schedule of the first template that serves an implementation."""
    for template in TEMPLATES:
        sch = blank(module)
        try:
            found = template.match(sch)
            if found is not None:
                knobs = template.fill(found, hardware)
                template.apply(sch, found, knobs)
                return Planned(implementation, dump(template, knobs), sch.mod)
        except RuntimeError:  # TIR without blocks, or a schedule that TVM refuses
            continue
    return None
