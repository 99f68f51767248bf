"""Engine `static`: a template's schedule at once, its knobs filled from hardware parameters.

It takes the place of "TOPI schedule with fallback values". After the RFC "Auto-Schedule from
Compute Declaration": classify the computation, then fill a template from coarse facts about the
machine.
"""

from typing import Final

import tvm
from tvm.s_tir import Schedule

from autopipe.schedules.hardware import Hardware
from autopipe.schedules.templates import contraction

TEMPLATES: Final = (contraction,)
"""Modules with `match`, `fill` and `apply`, asked in this order."""


def plan(module: tvm.IRModule, target: tvm.target.Target) -> Schedule | None:
    """Return the schedule with its trace, or None if no template serves the function."""
    hardware = Hardware.of(target)
    for template in TEMPLATES:
        sch = Schedule(module, debug_mask="none", error_render_level="none")
        try:
            found = template.match(sch)
            if found is not None:
                template.apply(sch, found, template.fill(found, hardware))
                return sch
        except RuntimeError:  # TIR without blocks, or a schedule that TVM refuses
            continue
    return None
