"""Puts the loop over a row of results inside the loops of their sums, for what is compared with.

TVM's loops sum one result after the other, which reads the second operand of a product against its
order and lets LLVM make no vectors of it. Each result still adds the same terms in the same order,
so its bits stay. The reference `plain` and the check of a schedule use it, and no build does.

Example: a product of [128, 384] by [384, 1536], in float32.

    for i, j, k in 128, 1536, 384:                 # before: b is read at steps of 6 KiB
        c[i, j] += a[i, k] * b[k, j]

    for i, j in 128, 1536: c[i, j] = 0             # after: rows of b and of c, in vectors
    for i, k, j in 128, 384, 1536:
        c[i, j] += a[i, k] * b[k, j]
"""

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm_ffi import structural_walk


def along_rows(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose sums go along rows of results, where their operands lie in rows."""
    result = tvm.IRModule(module.functions, attrs=module.attrs)
    for name, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            result[name] = _along_rows(function)
    return result


def _along_rows(function: tirx.PrimFunc) -> tirx.PrimFunc:
    schedule = Schedule(tvm.IRModule({"main": function}), error_render_level="none")
    try:
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    except RuntimeError:  # TIR without blocks
        return function
    for block in blocks:
        before = schedule.copy()
        try:
            _turn(schedule, block)
        except ScheduleError:  # such as loops that are not one inside the other: slow, and right
            schedule = before
    return schedule.mod["main"]


def _reads_rows(block: SBlock) -> bool:
    kinds = [axis.iter_type for axis in block.iter_vars]
    results = kinds.count(tirx.IterVar.DataPar)
    if not 0 < results < len(kinds) or tirx.IterVar.DataPar in kinds[results:]:
        return False
    loads: list[TensorLoad] = []
    structural_walk(block.body, (TensorLoad, loads.append))
    row = block.iter_vars[results - 1].var
    written = [region.source for region in block.writes]
    return any(
        _occurs(row, load.indices[-1])
        for load in loads
        if load.indices and not any(load.source.same_as(one) for one in written)
    )


def _occurs(var: tvm.ir.Var, expression: tvm.ir.Expr) -> bool:
    variables: list[tvm.ir.Var] = []
    structural_walk(expression, (tvm.ir.Var, variables.append))
    return any(var.same_as(other) for other in variables)


def _turn(schedule: Schedule, block: SBlockRV) -> None:
    """Move the last loop over results inside those of the sum. Raises ScheduleError."""
    found, loops = schedule.get(block), schedule.get_loops(block)
    axes = found.iter_vars
    if found.init is None or len(loops) != len(axes) or not _reads_rows(found):
        return
    results = sum(axis.iter_type == tirx.IterVar.DataPar for axis in axes)
    schedule.reorder(*loops[: results - 1], *loops[results:], loops[results - 1])
    schedule.decompose_reduction(block, loops[results])
