"""Analyzes functions that reduce rows, such as softmax: their blocks and the axes that count rows.

Example: softmax of x [2, rows, n] is the blocks max [2, rows], exp [2, rows, n], sum [2, rows] and
divide [2, rows, n]. In each, the first two axes count the rows.
"""

import math
from collections.abc import Sequence
from typing import Final

import tvm
import tvm_ffi
from tvm.ir import Call, Expr, Range
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, Var, const

from autopipe.compiler.find_nodes import find_nodes, is_among, list_loads
from autopipe.schedules.analysis.blocks import (
    SPATIAL,
    Extent,
    extent_of,
    extents_of,
    find_output_bits,
    is_copy,
    is_spatial,
    lengths_of,
)
from autopipe.schedules.analysis.expressions import flat_index, replace_variables, unravel_index
from autopipe.schedules.analysis.joining import find_element
from autopipe.schedules.analysis.reducer import Reducer
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
        indices = [part.min for part in read.region]
        flat = const(0, k.ty) + flat_index(read.source, indices)
        if analyzer.can_prove_equal(
            replace_variables(flat, values) - replace_variables(flat, start), k
        ):
            return True
    return False


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


_OPERATORS: Final = (tvm.tirx.Add, tvm.tirx.Max, tvm.tirx.Min, tvm.tirx.Mul)


def count_row_axes(blocks: Sequence[SBlock]) -> int | None:
    """Count the leading axes that are row axes in every block; None if they do not match.

    0 for a single row without an axis, such as a total. Extents are compared as expressions, so the
    result holds for all sizes of dynamic shapes.
    """
    axes = find_row_lengths(blocks)
    for leading in (*range(1, len(axes) + 1), 0):
        rows = axes[:leading]
        if all(_is_of_rows(block, rows) for block in blocks):
            is_local = (_is_row_local(block, blocks, rows) for block in blocks)
            return leading if all(is_local) else None
    return None


def find_row_lengths(blocks: Sequence[SBlock]) -> tuple[Extent, ...]:
    """Return the spatial extents of the first reduction; the leading ones count rows."""
    return lengths_of(next(block for block in blocks if not is_spatial(block)))


def count_in_group(length: Extent, row: Extent) -> int:
    """Return the number of elements of an axis per row; 0 if it does not divide into rows.

    Example: channels of an axis of 32, in groups that an axis of 8 counts, are 4 each.
    """
    if isinstance(length, int) and isinstance(row, int):
        return 0 if length % row else length // row
    return int(str(length) == str(row))


def _is_of_rows(block: SBlock, rows: Sequence[Extent]) -> bool:
    """Tell whether the leading axes of a block count the rows, and a reduction has no others.

    The last of these axes may divide into rows in a block without reduction.
    """
    lengths = lengths_of(block)
    kinds = [axis.iter_type for axis in block.iter_vars]
    spatial_first = kinds == sorted(kinds, key=lambda kind: kind != SPATIAL)
    inner_lengths = lengths[len(rows) :]
    groups = [count_in_group(*pair) for pair in zip(lengths, rows, strict=False)]
    single = is_spatial(block) or all(extent == 1 for extent in (*inner_lengths, *groups))
    return (
        spatial_first
        and len(groups) == len(rows)
        and all(groups)
        and all(group == 1 for group in groups[:-1])
        and find_output_bits(block) > 1
        and single
    )


def _is_row_local(block: SBlock, blocks: Sequence[SBlock], rows: Sequence[Extent]) -> bool:
    """Tell whether a block accesses the results of the blocks only in its own row."""
    axes = [axis.var for axis in block.iter_vars][: len(rows)]
    results = [region.source for one in blocks for region in one.writes]
    stores = [(one.buffer, one.indices) for one in find_nodes(block.body, BufferStore)]
    loads = [(load.source, load.indices) for load in list_loads(block.body)]
    return all(
        _is_own(index, axis, count_in_group(extent_of(size), row), count_in_group(length, row))
        for buffer, indices in (*stores, *loads)
        if is_among(buffer, results)
        for index, size, axis, length, row in zip(
            indices, buffer.ty.shape, axes, lengths_of(block), rows, strict=False
        )
        if length != 1
    )


def _is_own(index: Expr, axis: tvm.tirx.Var, row_elements: int, group: int) -> bool:
    """Tell whether an index is in the row of an axis with `group` elements per row.

    The buffer has as many elements per row, or one: the result of the row.
    """
    if row_elements == group:
        return bool(index.same_as(axis))
    is_group_index = isinstance(index, tvm.tirx.FloorDiv) and index.a.same_as(axis)
    return row_elements == 1 and is_group_index and extent_of(index.b) == group


def combines_terms(block: SBlock) -> bool:
    """Tell whether a block is an assignment, or a reduction by one operator per result."""
    if is_spatial(block):
        return isinstance(block.body, BufferStore)
    reducer = Reducer.of(block)
    return reducer is not None and all(
        isinstance(value, _OPERATORS) and find_element(reducer, position) is not None
        for position, value in enumerate(reducer.values)
    )
