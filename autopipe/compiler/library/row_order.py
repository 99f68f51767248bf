"""Move the loop over a row of results inside the reduction loops, for reference results.

TVM's loops sum one result after the other, which reads the second operand of a matmul against its
order, so that LLVM does not vectorize it. Each result still adds the same terms in the same order,
so its bits stay. The reference `plain` and the check of a schedule use it, and no build does.

Example: a matmul of [128, 384] by [384, 1536], in float32.

    for i, j, k in 128, 1536, 384:                 # before: b is read at steps of 6 KiB
        c[i, j] += a[i, k] * b[k, j]

    for i, j in 128, 1536: c[i, j] = 0             # after: rows of b and of c, in vectors
    for i, k, j in 128, 384, 1536:
        c[i, j] += a[i, k] * b[k, j]
"""

import tvm
from tvm import tirx
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV


def reorder_reductions(module: tvm.IRModule) -> tvm.IRModule:
    """Move the last spatial loop of each reduction of a module innermost."""
    result = tvm.IRModule(module.functions, attrs=module.attrs)
    for name, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            result[name] = _reorder_function(function)
    return result


def _reorder_function(function: tirx.PrimFunc) -> tirx.PrimFunc:
    workload = tvm.IRModule({"main": function})
    schedule = Schedule(workload, debug_mask="none", error_render_level="none")
    try:
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    except RuntimeError:  # TIR without blocks
        return function
    for block in blocks:
        before = schedule.copy()
        try:
            _reorder_loops(schedule, block)
        except ScheduleError:  # such as loops that are not perfectly nested: slow, and right
            schedule = before
    return schedule.mod["main"]


def _reorder_loops(schedule: Schedule, block: SBlockRV) -> None:
    """Move the last spatial loop of a block inside its reduction loops. Raises ScheduleError."""
    loops = schedule.get_loops(block)
    kinds = [axis.iter_type for axis in schedule.get(block).iter_vars]
    if len(kinds) != len(loops):
        return
    of_results = [kind == tirx.IterVar.DataPar for kind in kinds]
    results = [loop for loop, free in zip(loops, of_results, strict=True) if free]
    sums = [loop for loop, free in zip(loops, of_results, strict=True) if not free]
    if results and sums:
        schedule.reorder(*results[:-1], *sums, results[-1])
        schedule.decompose_reduction(block, sums[0])
