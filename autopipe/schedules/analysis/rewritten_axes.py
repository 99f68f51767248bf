"""Rewrites the only block of a function for other axes: those of its output, or collapsed ones.

Example: a block that computes x of [32, 7] for an output of [2, 7, 16].

    for c, h in grid(32, 7):                          # before
        y[c // 16, h, c % 16] = x[c, h]

    for a, h, b in grid(2, 7, 16):                    # after
        y[a, h, b] = x[a * 16 + b, h]

TVM 0.27 has `transform_block_layout` for it, which simplifies indices by the conditions around
them and is wrong where these nest: for an image that is rolled along both axes, as between the
layers of a Swin transformer, it read wrong rows.

The last axes of an elementwise block collapse into one axis over flat buffers. Where the last axis
is no multiple of a vector, a vector crosses its end, and TVM 0.27 does not see that it is
contiguous in memory: it loads each element separately, which takes ten times as long.

Example: y[i, j] = abs(x[i, j]) of [64, 56], to be computed in vectors of 16.

    for f in range(224):                              # TVM, after fuse and split
        y[f * 16 // 56, f * 16 % 56 + ...] = ...      # 16 numbers of up to two rows

    X, Y = x as [3584], y as [3584]                   # here: the same memory by another name
    for t in range(3584):                             # t = i * 56 + j
        Y[t] = abs(X[t])
"""

import math
from collections.abc import Sequence

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import IndexMap

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.schedules.analysis.blocks import bind_extents, number_of
from autopipe.schedules.analysis.expressions import (
    count_occurrences,
    flat_index,
    replace_variables,
    unravel_index,
)
from autopipe.schedules.loop_writer import FlatViews, element_block, store_element
from autopipe.schedules.primitives import rewrite_function


def use_written_axes(sch: Schedule, block: SBlockRV) -> SBlockRV:
    """Rewrite the only block of a function, and its loops; return the new block.

    Raises ScheduleError where it writes an element twice, or omits one.
    """
    old = sch.get(block)
    extents = [int(extent) for extent in old.body.buffer.shape]
    if math.prod(extents) != math.prod([int(axis.dom.extent) for axis in old.iter_vars]):
        raise ScheduleError(f"{old.name_hint} does not write each element once")
    index_map = IndexMap([axis.var for axis in old.iter_vars], list(old.body.indices), None)
    try:
        inverse_map = index_map.inverse([axis.dom for axis in old.iter_vars])
    except (RuntimeError, ValueError, TypeError) as error:
        raise ScheduleError(str(error)) from None
    if not _is_inverse(inverse_map, index_map, extents):
        raise ScheduleError(f"{old.name_hint} has store indices without an inverse")
    with IRBuilder() as builder:
        _write_loops(old, inverse_map, extents)
    rewrite_function(sch, builder.get(), [])
    return sch.get_sblock(old.name_hint)


def _is_inverse(inverse_map: IndexMap, index_map: IndexMap, extents: list[int]) -> bool:
    """Prove an inverse by substitution: TVM's is wrong for indices that wrap around."""
    places = [tirx.Var(f"at{n}", var.ty) for n, var in enumerate(inverse_map.initial_indices)]
    analyzer = bind_extents(zip(places, extents, strict=True))
    mapped_places = index_map.map_indices(list(inverse_map.map_indices(places)))
    return all(map(analyzer.can_prove_equal, mapped_places, places))


def _write_loops(old: SBlock, inverse_map: IndexMap, extents: list[int]) -> None:
    """Write the loops. An IRBuilder must be open."""
    dtype = str(old.iter_vars[-1].var.ty.dtype)
    with element_block(old.name_hint, extents, dtype) as axes:
        places: list[tvm.ir.Expr] = list(inverse_map.map_indices(axes))
        values = list(zip([axis.var for axis in old.iter_vars], places, strict=True))
        store_element(old.body.buffer[tuple(axes)], replace_variables(old.body.value, values))


def collapse_last_axes(sch: Schedule, block: SBlockRV, tail: int) -> SBlockRV:
    """Collapse the `tail` last axes of the only block of a function; return the new block.

    Raises ScheduleError where the index of some tensor is not linear along these axes.
    """
    old = sch.get(block)
    loads = list_loads(old.body.value)
    views = FlatViews([old.body.buffer, *(load.source for load in loads)])
    with IRBuilder() as builder:
        _write_flat_loops(old, tail, views)
    rewrite_function(sch, tirx.SeqStmt([*views.declare(), builder.get()]), [])
    return sch.get_sblock(old.name_hint)


def _write_flat_loops(old: SBlock, tail: int, views: FlatViews) -> None:
    """Write the loops, or raise ScheduleError. An IRBuilder must be open."""
    extents = [int(axis.dom.extent) for axis in old.iter_vars]
    *outer, last = [*extents[:-tail], math.prod(extents[-tail:])]
    dtype = str(old.iter_vars[-1].var.ty.dtype)
    with element_block(old.name_hint, [*outer, last], dtype) as axes:
        indices = [*axes[:-1], *unravel_index(extents[-tail:], axes[-1])]
        analyzer = bind_extents(zip(axes, [*outer, last], strict=True))
        values = list(zip([axis.var for axis in old.iter_vars], indices, strict=True))

        def locate(tensor: tvm.ir.Var, indices: Sequence[tvm.ir.Expr]) -> tvm.ir.Expr:
            offset = analyzer.simplify(number_of(0, dtype) + flat_index(tensor, indices))
            parts = find_nodes(offset, tirx.FloorDiv, tirx.FloorMod)
            if any(count_occurrences(part, axes[-1]) for part in parts):
                raise ScheduleError(f"{tensor.name} is not linear along the collapsed axes")
            return views.of(tensor)[offset]

        def read(load: TensorLoad) -> tvm.ir.Expr:
            return locate(load.source, [replace_variables(i, values, read) for i in load.indices])

        place = locate(old.body.buffer, indices)
        store_element(place, replace_variables(old.body.value, values, read))
