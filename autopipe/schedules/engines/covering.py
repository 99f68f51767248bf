"""Check that a schedule computes every element: TVM may lose some when it moves a block."""

import math

from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import IntImm

from autopipe.schedules.analysis.blocks import extents_of


def has_all_instances(sch: Schedule) -> bool:
    """Tell whether each block runs as often as it has instances; True where that is unknown.

    Example: `reverse_compute_at` moves a padding of 58 x 58 into the loops of its producer, which
    has 56 x 56, so the border is never written. Sketch search tries that where other blocks follow
    the padding.
    """
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except ScheduleError:  # a function of one block that has no axes, such as a sort
        return True
    for block in blocks:
        instances = *extents_of(sch.get(block)), *extents_of(sch.get(block), spatial=False)
        loops = [sch.get(loop).extent for loop in sch.get_loops(block)]
        if -1 in instances or not all(isinstance(extent, IntImm) for extent in loops):
            continue
        if math.prod(map(int, loops)) < math.prod(instances):
            return False
    return True
