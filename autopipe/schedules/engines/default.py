"""Engine `default`: a schedule for any PrimFunc without measuring, as the backend has it.

On a processor, producers are inlined, outer spatial loops run in parallel, and the innermost loop
is vectorized. A task gets this schedule if nothing better is known, so blocks that it cannot
improve stay as they are.
"""

import math
from collections.abc import Sequence

import tvm
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV

from autopipe.schedules.analysis.blocks import (
    SPATIAL,
    extents_of,
    find_output_bits,
    is_copy,
    is_product,
    is_spatial,
    is_static,
)
from autopipe.schedules.analysis.movement import match_block_movement
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.engines.engine import Planned
from autopipe.schedules.guarded import guard_parallel_loops
from autopipe.schedules.hardware import vector_bits
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.parallel_work import ELEMENTS, PRODUCTS
from autopipe.schedules.primitives import fuse_for_threads, parallelize_loop, write_out
from autopipe.schedules.replay import dump_trace

VECTORS = 2
"""Registers that a vectorized loop fills: two independent sums hide latency."""

LONG = 4
"""Registers that a vectorized loop fills where nothing is multiplied."""

REGISTERS = {64: 28, 32: 12}
"""Vector registers for sums, by the bytes of a register; the rest holds operands."""


def schedule(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Schedule the PrimFunc `main` of a module; TIR without blocks stays unchanged."""
    sch = _schedule_blocks(module, vector_bits(target))
    return module if sch is None else sch.mod


def plan(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the backend, or None for TIR without blocks."""
    return conditions.hardware.backend.schedule(module, conditions)


def plan_loops(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule for a processor, or None for TIR without blocks."""
    sch = _schedule_blocks(module, conditions.hardware.vector_bits)
    if sch is None:
        return None
    return Planned(DIRECT, dump_trace(sch.trace), sch.mod)


def _schedule_blocks(module: tvm.IRModule, width: int) -> Schedule | None:
    sch = Schedule(module, debug_mask="none", error_render_level="none")
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
        names = [sch.get(block).name_hint for block in blocks]
    except RuntimeError:  # ScheduleError is one
        return None
    if len(set(names)) != len(names):
        return None
    for name in [name for name in names if not _try_inline(sch, name)]:
        before = sch.copy()
        try:
            _schedule_block(sch, name, width)
        except ScheduleError:
            sch = before
    guard_parallel_loops(sch)
    return sch


def _try_inline(sch: Schedule, name: str) -> bool:
    """Inline a block into its consumers unless that repeats costly work; tell whether it was."""
    block = sch.get_sblock(name)
    consumers = sch.get_consumers(block)
    if not consumers or not is_spatial(sch.get(block)):
        return False
    feeds_reduction = not all(is_spatial(sch.get(consumer)) for consumer in consumers)
    if feeds_reduction and not is_copy(sch.get(block)):
        return False
    try:
        sch.compute_inline(block)
    except ScheduleError:
        return False
    return True


def _schedule_block(sch: Schedule, name: str, width: int) -> None:
    block = sch.get_sblock(name)
    loops = sch.get_loops(block)
    axes = sch.get(block).iter_vars
    sizes = *extents_of(sch.get(block)), *extents_of(sch.get(block), spatial=False)
    if len(axes) != len(loops) or 0 in sizes:
        return
    kinds = [axis.iter_type == SPATIAL for axis in axes]
    spatial = [loop for loop, is_spatial in zip(loops, kinds, strict=True) if is_spatial]
    reduction = [loop for loop, is_spatial in zip(loops, kinds, strict=True) if not is_spatial]
    if not spatial:
        return
    lanes = max(1, width // find_output_bits(sch.get(block)))
    if not reduction and len(spatial) > 1 and _is_left_to_llvm(sch.get(block)):
        parallelize_loop(sch, block, fuse_for_threads(sch, [*spatial[:-1]]), ELEMENTS)
    elif not reduction:
        outer, vector = _split_loop(sch, spatial[-1], VECTORS * lanes)
        parallelize_loop(sch, block, fuse_for_threads(sch, [*spatial[:-1], outer]), ELEMENTS)
        sch.vectorize(vector)
    elif _has_contiguous_operand(sch.get(block)) and not _can_tile(sch.get(block)):
        _schedule_columns(sch, name, (spatial, reduction), LONG * lanes)
    elif _has_contiguous_operand(sch.get(block)):
        _schedule_tile(sch, name, (spatial, reduction), (lanes, REGISTERS.get(width // 8, 8)))
    else:
        _schedule_rows(sch, block, spatial, reduction)


def _can_tile(block: SBlock) -> bool:
    """Tell whether sums of products may be computed at a fused loop over tiles.

    The index of that loop is divided by all extents but the first. Where these are dynamic, TVM
    moves the sums to wrong places.
    """
    return is_product(block) and min(extents_of(block)[1:], default=0) >= 0


def _is_left_to_llvm(block: SBlock) -> bool:
    """Tell whether LLVM vectorizes the last axis better than TVM does."""
    if extents_of(block)[-1] < 0:
        return True
    sizes = [size for read in block.reads for size in read.source.shape]
    if not is_static(block) or not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
        return False
    movement = match_block_movement(block)
    return movement is not None and movement.scattered


def _schedule_rows(
    sch: Schedule, block: SBlockRV, spatial: Sequence[LoopRV], reduction: Sequence[LoopRV]
) -> None:
    """Schedule a reduction along memory, such as in softmax: its rows run in parallel."""
    sch.reorder(*spatial, *reduction)
    parallelize_loop(sch, block, fuse_for_threads(sch, [*spatial]), ELEMENTS)


def _schedule_columns(
    sch: Schedule, name: str, loops: tuple[Sequence[LoopRV], Sequence[LoopRV]], most: int
) -> None:
    """Schedule a reduction across memory, such as pooling: long vectors, as loads cost the most."""
    spatial, reduction = loops
    outer, vector = _split_loop(sch, spatial[-1], most)
    sch.reorder(*spatial[:-1], outer, *reduction, vector)
    parallelize_loop(
        sch, sch.get_sblock(name), fuse_for_threads(sch, [*spatial[:-1], outer]), ELEMENTS
    )
    sch.vectorize(vector)
    init = sch.decompose_reduction(sch.get_sblock(name), reduction[0])
    sch.vectorize(sch.get_loops(init)[-1])


def _schedule_tile(
    sch: Schedule,
    name: str,
    loops: tuple[Sequence[LoopRV], Sequence[LoopRV]],
    hardware: tuple[int, int],
) -> None:
    """Schedule a sum of products: a tile of outputs in registers, its last axis vectorized.

    `loops` are the spatial and the reduction loops; `hardware` is lanes and registers.
    """
    (spatial, reduction), (lanes, registers) = loops, hardware
    outer, vector = _split_loop(sch, spatial[-1], VECTORS * lanes)
    outers, inner = [*spatial[:-1], outer], []
    if len(spatial) > 1:
        vector_registers = -(-int(sch.get(vector).extent) // lanes)
        outers[-2], unrolled_loop = _split_loop(
            sch, spatial[-2], max(1, registers // vector_registers)
        )
        inner = [unrolled_loop]
    sch.reorder(*outers, *inner, vector)
    tile = sch.fuse(*outers)
    block = sch.get_sblock(name)
    parallelize_loop(sch, block, tile, PRODUCTS)
    sums = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(sums, tile)
    sch.reorder(*reduction, *inner, vector)
    write_out(sch, block, 1 + len(inner))
    write_out(sch, sch.decompose_reduction(block, reduction[0]), 1 + len(inner))
    sch.vectorize(sch.get_loops(sums)[-1])


def _split_loop(sch: Schedule, loop: LoopRV, most: int) -> list[LoopRV]:
    """Split off an inner loop of at most `most` steps, of 1 if the extent is dynamic."""
    extent = sch.get(loop).extent
    if not isinstance(extent, tvm.tirx.IntImm):
        return list(sch.split(loop, [None, 1]))
    steps = int(extent)
    inner = max(
        list_divisors(steps, most), key=lambda d: (math.gcd(d, most), d)
    )  # LLVM is slow with odd vectors
    return list(sch.split(loop, [steps // inner, inner]))


def _has_contiguous_operand(block: SBlock) -> bool:
    """Tell whether some operand is contiguous along the last spatial axis."""
    last = [axis.var for axis in block.iter_vars if axis.iter_type == SPATIAL][-1]
    return any(read.region and _is_unit_stride(read.region[-1].min, last) for read in block.reads)


def _is_unit_stride(index: tvm.ir.Expr, axis: tvm.tirx.Var) -> bool:
    """Tell whether an index grows with an axis, such as the column of a window."""
    if isinstance(index, tvm.tirx.Add):
        return index.a.same_as(axis) or index.b.same_as(axis)
    return index.same_as(axis)
