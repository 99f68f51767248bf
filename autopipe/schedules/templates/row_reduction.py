"""Template for reductions along memory: softmax, layer normalization, means, and their like.

All that depends on a row is computed while the row is in the cache: each reduction as a vector of
partial results, which halve until one is left, and between them the elements, a vector at a time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import For, Stmt

from autopipe.schedules.analysis.blocks import bits, extents_of, is_spatial
from autopipe.schedules.analysis.rows import (
    blocks_of,
    count,
    gather,
    in_order,
    inline,
    one_result,
    reduces_one,
    repeats,
    row_loop,
    sums_several,
    work,
)
from autopipe.schedules.hardware import Hardware

NAME: Final = "row_reduction"
VERSION: Final = 1

MAX_VECTORS = 8
"""Vectors of partial results."""

_LEAST_WORK: Final = 1 << 17
"""Operations below which one thread is done before another has woken up; some microseconds."""

_LONG: Final = 64
"""Vectors in a row for which the last ones may be reduced an element at a time."""

_LEAST_WHOLE: Final = 8
"""Partial results that are worth it, where they have to divide the row."""

_UNROLLED: Final = 16
"""Longest loop that is unrolled."""

_FEW: Final = 4
"""This many partial results are reduced one after the other; more are first reduced to a quarter,
as vectors."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The knobs."""

    partial: int
    """Partial results of a reduction, a power of two; at most half the row, which they need not
    divide."""
    width: int
    """Elements in a vector of any other loop along a row, a power of two that divides it; 1 leaves
    such loops to LLVM, which can make vectors of any row."""


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A function that the template serves, as far as the knobs depend on it."""

    rows: int
    row: int
    """Elements in a row."""
    bits: int
    """Width of the result of the reduction."""
    whole: bool
    """Whether the partial results have to divide the row; several sums at a time do not vectorize
    otherwise."""
    widths: tuple[int, ...]
    """Lengths of the other loops along a row."""


def match(sch: Schedule) -> RowReduction | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    trial = sch.copy()
    inline(trial)
    steps = blocks_of(trial)
    blocks = [trial.get(step) for step in steps]
    reductions = [block for block in blocks if not is_spatial(block)]
    if min(map(count, blocks)) < 1 or not one_result(trial) or not all(map(_fits, reductions)):
        return None
    shapes = {(math.prod(extents_of(block)), _row(block)) for block in reductions}
    if len(shapes) != 1:
        return None
    ((rows, row),) = shapes
    loop = row_loop(trial, steps[-1], rows)
    if row == 1 or loop is None:
        return None
    gather(trial, steps, loop)
    if any(repeats(trial, step) for step in steps):
        return None
    lengths = {count(block) // rows for block in blocks if is_spatial(block)} - {1}
    whole = any(map(sums_several, reductions))
    if whole and row % _LEAST_WHOLE:
        return None
    return RowReduction(rows, row, max(map(bits, reductions)), whole, tuple(sorted(lengths)))


def settings(found: RowReduction, hardware: Hardware) -> Iterator[Vectors]:
    """Yield every setting: powers of two up to some vectors."""
    lanes = hardware.lanes(found.bits)
    for partial in _powers(min(found.row // 2, MAX_VECTORS * lanes)):
        if found.whole and found.row % partial:
            break
        for width in _powers(2 * lanes if found.widths else 1):
            if all(length % width == 0 for length in found.widths):
                yield Vectors(partial, width)


def fill(found: RowReduction, hardware: Hardware) -> Vectors:
    """Return the knobs for a processor, without measuring.

    Some vectors of partial results hide the latency of an addition if they divide the row.
    """
    lanes = hardware.lanes(found.bits)
    half = max(_powers(found.row // 2))
    exact = min(half, math.gcd(found.row, 4 * lanes))
    most = min(half, 4 * lanes if found.row >= _LONG * lanes else lanes)
    width = math.gcd(lanes, *found.widths) if found.widths else 1
    return Vectors(
        partial=exact if found.whole or 2 * exact >= most else most,
        width=width if 2 * width >= lanes else 1,
    )


def apply(sch: Schedule, found: RowReduction, knobs: Vectors) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    inline(sch)
    vectors, steps = [], []
    for block in blocks_of(sch):
        partial = _partial(sch, block, knobs.partial)
        vectors += partial
        steps += [*partial, block]
    loop = row_loop(sch, steps[-1], found.rows)
    if found.rows > 1 and sum(work(sch.get(step)) for step in steps) >= _LEAST_WORK:
        sch.parallel(loop)
    gather(sch, steps, loop)
    for step in steps:
        if any(step.same_as(vector) for vector in vectors):
            _sum_vectors(sch, step, found.row)
        else:
            _go_along(sch, step, knobs.width)


def _partial(sch: Schedule, block: SBlockRV, partial: int) -> list[SBlockRV]:
    """Split steps off a reduction that reduce vectors to one; return them in order."""
    if is_spatial(sch.get(block)):
        return []
    spatial = len(extents_of(sch.get(block)))
    row = sch.fuse(*sch.get_loops(block)[spatial:])
    steps = []
    while int(sch.get(row).extent) > _FEW and partial > 1:
        _, lane = sch.split(row, [None, partial])
        steps.append(sch.rfactor(lane, spatial))
        row = sch.get_loops(block)[-1]
        partial = max(_FEW, partial // _FEW) if partial > _FEW else 1
    return steps


def _go_along(sch: Schedule, step: SBlockRV, width: int) -> None:
    """Schedule the elements of a row, or the rest of a reduction."""
    _, *loops = sch.get_loops(step)
    if not loops:
        return
    loop = sch.fuse(*loops)
    extent = int(sch.get(loop).extent)
    if not is_spatial(sch.get(step)):
        if extent <= _UNROLLED:
            sch.unroll(loop)
    elif width > 1 and extent % width == 0:
        sch.vectorize(sch.split(loop, [None, width])[1])


def _sum_vectors(sch: Schedule, step: SBlockRV, row: int) -> None:
    """Schedule a step that reduces many vectors to one."""
    _, lane, vectors = sch.get_loops(step)
    lanes, count = (int(sch.get(loop).extent) for loop in (lane, vectors))
    short = row < lanes * count and row > lanes * (count - 1)
    if short:
        _guard(sch, lane, row)
        _, lane, vectors = sch.get_loops(step)
        sch.annotate(vectors, "pragma_loop_partition_hint", True)  # noqa: FBT003 - TVM's way
    sch.reorder(vectors, lane)
    sch.vectorize(lane)
    if count <= _FEW and not short:
        sch.unroll(vectors)
    start = sch.decompose_reduction(step, vectors)
    sch.vectorize(sch.get_loops(start)[-1])


def _guard(sch: Schedule, lane: LoopRV, row: int) -> None:
    """Keep a step inside a row that its vectors do not divide; `compute_at` forgets to."""
    sref = sch.get_sref(lane)
    lanes = int(sref.stmt.extent)

    def guarded(stmt: Stmt) -> Stmt:
        if isinstance(stmt, SBlockRealize):
            inside = stmt.iter_values[-1] * lanes + stmt.iter_values[0] < row
            return SBlockRealize(stmt.iter_values, inside, stmt.block)
        return For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, guarded(stmt.body))

    sch.state.replace(sref, guarded(sref.stmt))


def _fits(block: SBlock) -> bool:
    return (reduces_one(block) or sums_several(block)) and in_order(block)


def _row(block: SBlock) -> int:
    return math.prod(extents_of(block, spatial=False))


def _powers(most: int) -> list[int]:
    """Return the powers of two up to a number."""
    return [1 << exponent for exponent in range(most.bit_length())]
