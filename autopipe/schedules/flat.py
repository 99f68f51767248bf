"""Collapses the last axes of an elementwise block into one axis over flat buffers.

Where the last axis is no multiple of a vector, a vector crosses its end, and TVM 0.27 does not see
that it is contiguous in memory: it loads each element separately, which takes ten times as long.

Example: y[i, j] = abs(x[i, j]) of [64, 56], to be computed in vectors of 16.

    for f in range(224):                              # TVM, after fuse and split
        y[f * 16 // 56, f * 16 % 56 + ...] = ...      # 16 numbers of up to two rows

    X, Y = x as [3584], y as [3584]                   # here: the same memory by another name
    for t in range(3584):                             # t = i * 56 + j
        Y[t] = abs(X[t])
"""

import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import (
    count_occurrences,
    replace_variables,
    unravel_index,
)
from autopipe.schedules.loop_writer import FlatViews, element_block, store_element
from autopipe.schedules.primitives import rewrite_function


def collapse_last_axes(sch: Schedule, block: SBlockRV, tail: int) -> SBlockRV:
    """Collapse the `tail` last axes of the only block of a function; return the new block.

    Raises ScheduleError where the index of some tensor is not linear along these axes.
    """
    old = sch.get(block)
    loads = list_loads(old.body.value)
    views = FlatViews([old.body.buffer, *(load.source for load in loads)])
    with IRBuilder() as builder:
        _write_loops(old, tail, views)
    rewrite_function(sch, tirx.SeqStmt([*views.declare(), builder.get()]), [])
    return sch.get_sblock(old.name_hint)


def _write_loops(old: SBlock, tail: int, views: FlatViews) -> None:
    """Write the loops. An IRBuilder must be open."""
    extents = [int(axis.dom.extent) for axis in old.iter_vars]
    *outer, last = [*extents[:-tail], math.prod(extents[-tail:])]
    dtype = str(old.iter_vars[-1].var.ty.dtype)
    sizes = [number_of(extent, dtype) for extent in (*outer, last)]
    with element_block(old.name_hint, sizes) as axes:
        indices = [*axes[:-1], *unravel_index(extents[-tail:], axes[-1])]
        row = _Row(views, axes, [*outer, last])
        values = list(zip([axis.var for axis in old.iter_vars], indices, strict=True))

        def read(load: TensorLoad) -> tvm.ir.Expr:
            return row.at(load.source, [replace_variables(i, values, read) for i in load.indices])

        store_element(
            row.at(old.body.buffer, indices), replace_variables(old.body.value, values, read)
        )


class _Row:
    """Computes the offsets of elements in the flat views."""

    def __init__(self, views: FlatViews, axes: Sequence[Any], extents: Sequence[int]) -> None:
        self._views = views
        self._known = Analyzer()
        for axis, extent in zip(axes, extents, strict=True):
            self._known.bind(axis, tvm.ir.Range(0, extent))
        self._last = axes[-1]

    def at(self, tensor: tvm.ir.Var, indices: Sequence[tvm.ir.Expr]) -> tvm.ir.Expr:
        """Return the load of an element. Raises ScheduleError if its offset is not linear."""
        offset = number_of(0, str(self._last.ty.dtype))
        for index, extent in zip(indices, tensor.shape, strict=True):
            offset = offset * int(extent) + index
        offset = self._known.simplify(offset)
        parts = find_nodes(offset, tirx.FloorDiv, tirx.FloorMod)
        if any(count_occurrences(part, self._last) for part in parts):
            raise ScheduleError(f"{tensor.name} is not linear along the collapsed axes")
        return self._views.of(tensor)[offset]
