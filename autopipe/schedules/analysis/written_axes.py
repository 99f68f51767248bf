"""Rewrites a block so that its axes are those of its output.

Example: a block that computes x of [32, 7] for an output of [2, 7, 16].

    for c, h in grid(32, 7):                          # before
        y[c // 16, h, c % 16] = x[c, h]

    for a, h, b in grid(2, 7, 16):                    # after
        y[a, h, b] = x[a * 16 + b, h]

TVM 0.27 has `transform_block_layout` for it, which simplifies indices by the conditions around
them and is wrong where these nest: for an image that is rolled along both axes, as between the
layers of a Swin transformer, it read wrong rows.
"""

import math

import tvm
from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx import IndexMap

from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import replace_variables
from autopipe.schedules.loop_writer import element_block, store_element
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
    analyzer = Analyzer()
    places = [tirx.Var(f"at{n}", var.ty) for n, var in enumerate(inverse_map.initial_indices)]
    for place, extent in zip(places, extents, strict=True):
        analyzer.bind(place, Range(0, extent))
    mapped_places = index_map.map_indices(list(inverse_map.map_indices(places)))
    return all(map(analyzer.can_prove_equal, mapped_places, places))


def _write_loops(old: SBlock, inverse_map: IndexMap, extents: list[int]) -> None:
    """Write the loops. An IRBuilder must be open."""
    dtype = str(old.iter_vars[-1].var.ty.dtype)
    with element_block(old.name_hint, [number_of(extent, dtype) for extent in extents]) as axes:
        places: list[tvm.ir.Expr] = list(inverse_map.map_indices(axes))
        values = list(zip([axis.var for axis in old.iter_vars], places, strict=True))
        store_element(old.body.buffer[tuple(axes)], replace_variables(old.body.value, values))
