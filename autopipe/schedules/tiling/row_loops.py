"""Writes the loop over rows, with all steps of a row in it: whole vectors, then the remainder.

Example: `autopipe/schedules/templates/rows.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import tvm
from tvm.ir import Expr
from tvm.s_tir import SBlock
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes
from autopipe.compiler.find_nodes import is_among
from autopipe.schedules.analysis.blocks import (
    Extent,
    axes_of,
    is_large_enough,
    is_spatial,
    lengths_of,
    number_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    Values,
    open_loop,
    open_loops,
    replace_variables,
    unravel_index,
    write_branches,
    write_element_loops,
    write_lane_loops,
)
from autopipe.schedules.analysis.reducer import Reducer
from autopipe.schedules.analysis.rows import (
    count_in_group,
    estimate_body_cost,
    find_row_lengths,
    is_step,
)
from autopipe.schedules.loop_writer import job_loop, write_store
from autopipe.schedules.parallel_work import OPERATIONS

_MAX_SERIAL_PARTIALS: Final = 4
"""Up to so many partial results are combined one by one."""


def write_rows(
    blocks: Sequence[SBlock], leading: int, width: int, dynamic_sizes: DynamicSizes | None
) -> tvm.tirx.Stmt:
    """Return the loop over all rows, in parallel where that pays."""
    with IRBuilder() as builder:
        for parallel in write_branches(_needs_threads(blocks, dynamic_sizes)):
            _write_row_loop(blocks, leading, width, parallel=parallel)
    return builder.get()


def _needs_threads(blocks: Sequence[SBlock], dynamic_sizes: DynamicSizes | None) -> bool | Expr:
    """Tell whether threads pay; a condition if that depends on dynamic shapes."""
    steps = (
        [estimate_body_cost(one), *lengths_of(one), *lengths_of(one, spatial=False)]
        for one in blocks
    )
    work = [product_of(lengths) for lengths in steps]
    if all(length == 1 for length in find_row_lengths(blocks)):
        return False
    return is_large_enough([sum(work[1:], start=work[0])], OPERATIONS, dynamic_sizes)


def _write_row_loop(blocks: Sequence[SBlock], leading: int, width: int, *, parallel: bool) -> None:
    """Write the loop over all rows."""
    rows = find_row_lengths(blocks)[:leading]
    dtype = next(axis.var.ty.dtype for block in blocks for axis in block.iter_vars)
    written_buffers = [region.source for block in blocks for region in block.writes]
    read_buffers = [region.source for block in blocks for region in block.reads]
    inputs = [buffer for buffer in read_buffers if not is_among(buffer, written_buffers)]
    buffers = inputs, written_buffers
    with job_loop("rows", rows, dtype, buffers, parallel=parallel) as at:
        for before, block, after in zip([None, *blocks], blocks, [*blocks[1:], None], strict=False):
            if not is_spatial(block):
                step = before if before is not None and is_step(before, block) else None
                _write_reduction(block, at, width, dtype, step)
            elif after is None or not is_step(block, after):
                group = count_in_group(lengths_of(block)[len(at) - 1], rows[-1]) if rows else 1
                _write_elementwise_step(block, at, group, width, dtype)


def _write_elementwise_step(
    block: SBlock, at: Sequence[Expr], group: int, width: int, dtype: str
) -> None:
    """Write a step that computes each element of a row.

    `group` elements of the last axis of rows belong to one row.
    """
    axes = [axis.var for axis in block.iter_vars]
    with open_loops(T.serial, [group] if group > 1 else [], dtype) as members:
        at = [*at[:-1], *(at[-1] * group + member for member in members)] if members else at
        for index in _write_axis_loops(lengths_of(block)[len(at) :], width, dtype):
            write_store(block.body, list(zip(axes, [*at, *index], strict=True)))


def _write_axis_loops(lengths: Sequence[Extent], width: int, dtype: str) -> Iterator[list[Expr]]:
    """Write the loops over the axes of a row, the last one in vectors; yield the indices."""
    fill_axis = all(isinstance(n, int) and n % width == 0 for n in lengths[-1:])
    outer, along = split_row(lengths, 1 if lengths and fill_axis else 2)
    with open_loops(T.serial, outer, dtype) as before:
        if not along:
            yield before
            return
        for element in write_element_loops(product_of(along), width, dtype):
            yield [*before, *unravel_index(along, element)]


def split_row(
    lengths: Sequence[Extent], most: int = 2
) -> tuple[Sequence[Extent], Sequence[Extent]]:
    """Split the axes of a row into outer axes and those after them that are fused.

    Fused are as many long axes as TVM can prove contiguous, or the last axis if one is dynamic.
    """
    if not all(isinstance(length, int) for length in lengths):
        return lengths[:-1], lengths[-1:]
    long = [axis for axis, length in enumerate(lengths) if length != 1][-most:]
    first = long[0] if long else 0
    return lengths[:first], lengths[first:]


def _write_reduction(
    block: SBlock,
    at: Sequence[Expr],
    width: int,
    dtype: str,
    step: SBlock | None,
) -> None:
    """Write a reduction of a row, `width` partial results at a time.

    `step` is the block that computes the operand in place, None if it is stored.
    """
    reducer = Reducer.of(block)
    assert reducer is not None  # noqa: S101 - `match` takes no other reductions
    spatial, reduction_axes = axes_of(block)
    rows: Values = [
        (axis.var, place)
        for axis, place in zip(
            spatial, [*at, *(axis.dom.min for axis in spatial[len(at) :])], strict=True
        )
    ]
    parts = [
        T.sblock_alloc_buffer((width,), str(store.buffer.ty.dtype), scope="local")
        for store in reducer.stores
    ]
    with open_loop(T.vectorized, width, dtype) as lane:
        for part, start in zip(parts, reducer.starts, strict=True):
            T.buffer_store(part, start, [lane])
    outer, along = split_row(lengths_of(block, spatial=False))
    with open_loops(T.serial, outer, dtype) as before:
        for index, lane in write_lane_loops(product_of(along), width, dtype):
            terms = [*before, *unravel_index(along, index)]
            values = [*rows, *zip([a.var for a in reduction_axes], terms, strict=True)]
            if step is not None:
                places = [value for _, value in values]
                step_axes = [axis.var for axis in step.iter_vars]
                write_store(step.body, list(zip(step_axes, places, strict=True)))
            _accumulate_step(reducer, parts, values, lane)
    for store, part, value in zip(reducer.stores, parts, reducer.values, strict=True):
        total = _combine_partials(type(value), part, width, dtype)
        T.buffer_store(store.buffer, total, [replace_variables(i, rows) for i in store.indices])


def _accumulate_step(reducer: Reducer, parts: Sequence[Any], values: Values, lane: Expr) -> None:
    """Write one step of the reductions."""
    now = [part[lane] for part in parts]
    after = reducer.step(now, values, lambda load: replace_variables(load, values))
    for part, value in zip(parts, after, strict=True):
        T.buffer_store(part, value, [lane])


def _combine_partials(
    kind: Any,  # noqa: ANN401 - a class of TVM
    partial: tvm.ir.Expr,
    width: int,
    dtype: str,
) -> Expr:
    """Combine partial results to one, half of them with the other half, as vectors.

    The last few are combined in pairs: ((a + b) + (c + d)).
    """
    while width > _MAX_SERIAL_PARTIALS:
        width //= 2
        with open_loop(T.vectorized, width, dtype) as lane:
            T.buffer_store(partial, kind(partial[lane], partial[lane + width]), [lane])
    values = [partial[number_of(place, dtype)] for place in range(width)]
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [kind(one, other) for one, other in pairs] + (
            [values[-1]] if len(values) % 2 else []
        )
    return values[0]
