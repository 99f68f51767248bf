"""Engine `static`: a template's schedule at once, its knobs filled from hardware parameters.

It takes the place of "TOPI schedule with fallback values". After the RFC "Auto-Schedule from
Compute Declaration": classify the computation, then fill a template from coarse facts about the
machine.
"""

import tvm
from tvm.s_tir import Schedule

from autopipe.schedules.hardware import Hardware
from autopipe.schedules.templates import contraction


def plan(module: tvm.IRModule, target: tvm.target.Target) -> Schedule | None:
    """Return the schedule with its trace, or None if no template serves the function."""
    sch = Schedule(module, debug_mask="none", error_render_level="none")
    try:
        found = contraction.match(sch)
        if found is None:
            return None
        contraction.apply(sch, found, contraction.fill(found, Hardware.of(target)))
    except RuntimeError:  # TIR without blocks, or a schedule that TVM refuses
        return None
    return sch
