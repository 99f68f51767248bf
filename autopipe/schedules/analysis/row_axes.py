"""Finds the axes that count rows in functions that reduce rows, such as softmax.

Example: softmax of x [2, rows, n] is the blocks max [2, rows], exp [2, rows, n], sum [2, rows] and
divide [2, rows, n]. In each, the first two axes count the rows.
"""

from collections.abc import Sequence
from typing import Final

import tvm
from tvm.ir import Expr
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore

from autopipe.compiler.find_nodes import find_nodes, is_among, list_loads
from autopipe.schedules.analysis.blocks import (
    SPATIAL,
    Extent,
    extent_of,
    find_output_bits,
    is_spatial,
    lengths_of,
)
from autopipe.schedules.analysis.joining import find_element
from autopipe.schedules.analysis.reducer import Reducer

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
