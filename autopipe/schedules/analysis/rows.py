"""Predicates on the blocks of row functions: cheap, in memory order, or steps of the same rows."""

import math
from typing import Final

import tvm_ffi
from tvm.ir import Call, Expr, Range
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, Var, const

from autopipe.compiler.find_nodes import is_among, list_loads
from autopipe.schedules.analysis.blocks import SPATIAL, extents_of, is_copy, is_spatial, lengths_of
from autopipe.schedules.analysis.expressions import replace_variables, unravel_index
from autopipe.schedules.analysis.simple_indices import simplify_block

_CALL_OPERATIONS: Final = 4
"""Operations of an elementary function, such as exp."""


def blocks_of(sch: Schedule) -> list[SBlockRV]:
    """Return the outermost blocks, in order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def inline_cheap_blocks(sch: Schedule) -> None:
    """Inline blocks that are cheap to recompute in each consumer."""
    for rv in blocks_of(sch):
        block, consumers = sch.get(rv), sch.get_consumers(rv)
        is_elementwise = all(
            count_iterations(sch.get(consumer)) == count_iterations(block) for consumer in consumers
        )
        is_cheap = is_elementwise and (len(consumers) == 1 or not _has_call(block))
        if consumers and (is_copy(block) or (is_spatial(block) and is_cheap)):
            sch.compute_inline(rv)
    for rv in blocks_of(sch):
        simplify_block(sch, rv)


def has_one_result(sch: Schedule) -> bool:
    """Tell whether the last block writes the only output of the function."""
    params = sch.mod["main"].params
    results = [region.source for rv in blocks_of(sch) for region in sch.get(rv).writes]
    is_output = [is_among(source, params) for source in results]
    return is_output[-1:] == [True] and not any(is_output[:-1])


def is_in_memory_order(block: SBlock) -> bool:
    """Tell whether a reduction reads some operand contiguously along its reduction axes."""
    reduction_axes = [axis for axis in block.iter_vars if axis.iter_type != SPATIAL]
    k = Var("k", reduction_axes[0].var.ty)
    extents = extents_of(block, spatial=False)
    analyzer = Analyzer()
    analyzer.bind(k, Range(const(0, k.ty), const(math.prod(extents), k.ty)))
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    values = [
        (a.var, index) for a, index in zip(reduction_axes, unravel_index(extents, k), strict=True)
    ]
    start = [(axis.var, const(0, k.ty)) for axis in reduction_axes]
    for read in block.reads:
        flat = const(0, k.ty)
        for index, extent in zip(read.region, read.source.shape, strict=True):
            flat = flat * extent + index.min
        if analyzer.can_prove_equal(
            replace_variables(flat, values) - replace_variables(flat, start), k
        ):
            return True
    return False


def reduces_one(block: SBlock) -> bool:
    """Tell whether the block reduces to one value."""
    return isinstance(block.body, BufferStore)


def is_step(step: SBlock, reduction: SBlock) -> bool:
    """Tell whether a block computes exactly the operand of a reduction, element by element.

    Then one pass over the row serves both: the summand is still in a register.
    """
    if not is_spatial(step) or is_spatial(reduction):
        return False
    axes = [axis.var for axis in reduction.iter_vars]
    step_loads = [
        load for load in list_loads(reduction.body) if load.source.same_as(step.body.buffer)
    ]
    is_aligned = all(
        len(load.indices) == len(axes) and all(map(Expr.same_as, load.indices, axes))
        for load in step_loads
    )
    step_axes = [axis.var for axis in step.iter_vars]
    return (
        bool(step_loads)
        and is_aligned
        and list(map(str, lengths_of(step)))
        == list(map(str, [*lengths_of(reduction), *lengths_of(reduction, spatial=False)]))
        and all(map(Expr.same_as, step.body.indices, step_axes))
    )


def has_indirect_loads(block: SBlock) -> bool:
    """Tell whether a block has loads in the indices of loads (gathers).

    TVM 0.27 narrows int64 indices where a loop is split, but not those loaded from data, and then
    refuses to compare the two.
    """
    return any(list_loads(index) for load in list_loads(block.body) for index in load.indices)


def estimate_body_cost(block: SBlock) -> int:
    """Estimate the operations of one iteration of a block."""
    return _CALL_OPERATIONS if _has_call(block) else 1


def count_iterations(block: SBlock) -> int:
    """Return the number of iterations of a block, or -1 if it is not constant."""
    extents = *extents_of(block), *extents_of(block, spatial=False)
    return math.prod(extents) if min(extents, default=1) > 0 else -1


def _has_call(block: SBlock) -> bool:
    """Tell whether a block calls a function, such as exp."""
    return tvm_ffi.structural_walk(block.body, (Call, tvm_ffi.VisitInterrupt)) is not None
