"""Whether a schedule still computes every element: TVM may lose some of a block that it moves."""

import math

from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import IntImm

from autopipe.schedules.analysis.blocks import extents_of


def covers(sch: Schedule) -> bool:
    """Tell whether no block is run fewer times than it has instances; True where that is unknown.

    `reverse_compute_at` moves a padding into the loops of what it pads, which have no iterations
    for the border. Sketch search tries that where a function goes on behind the padding.
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
