"""Puts the loop over a row of results inside the loops of their sums, for the reference `plain`.

TVM's loops sum one result after the other, which reads the second operand of a product against its
order and lets LLVM make no vectors of it. Each result still adds the same terms in the same order,
so its bits stay. This is the reference's own: no build uses it.

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
from tvm_ffi import structural_walk


def along_rows(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose sums go along rows of results, where their operands lie in rows."""
    functions = {name: _along_rows(function) for name, function in module.functions_items()}
    changed = {name: function for name, function in functions.items() if function is not None}
    result = tvm.IRModule(module.functions, attrs=module.attrs)
    for name, function in changed.items():
        result[name] = function
    return result


def _along_rows(function: tvm.ir.BaseFunc) -> tirx.PrimFunc | None:
    """Return a function with its loops in order, or None if it is no loops or stays as it is."""
    if not isinstance(function, tirx.PrimFunc):
        return None
    schedule = Schedule(tvm.IRModule({"main": function}))
    names = [block.name_hint for block in _sums(function.body)]
    for name in names:
        try:
            _turn(schedule, name)
        except ScheduleError:  # such as loops that are not one inside the other: slow, and right
            return None
    return schedule.mod["main"] if names else None


def _sums(body: tirx.Stmt) -> list[SBlock]:
    """Return the blocks that reduce, and that read some tensor along the last axis of results."""
    blocks: list[SBlock] = []
    structural_walk(body, (SBlock, blocks.append))
    return [block for block in blocks if block.init is not None and _reads_rows(block)]


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


def _turn(schedule: Schedule, name: str) -> None:
    """Move the last loop over results inside those of the sum. Raises ScheduleError."""
    block = schedule.get_sblock(name)
    axes = schedule.get(block).iter_vars
    loops = schedule.get_loops(block)
    results = sum(axis.iter_type == tirx.IterVar.DataPar for axis in axes)
    if len(loops) != len(axes):
        return
    schedule.decompose_reduction(block, loops[results - 1])
    loops = schedule.get_loops(schedule.get_sblock(f"{name}_update"))
    *_, row = loops[:results]
    schedule.reorder(*loops[results:], row)
