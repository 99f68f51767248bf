"""Template for reductions along memory: softmax, layer normalization, means, and their like.

All that depends on a row is computed while the row is in the cache: each reduction as a vector of
partial results, which halve until one is left, and between them the elements, a vector at a time.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import tvm_ffi
from tvm.ir import Call, Expr
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import For, Stmt, Var

from autopipe.schedules.blocks import SPATIAL, bits, is_copy, is_spatial
from autopipe.schedules.hardware import Hardware

NAME: Final = "row_reduction"
VERSION: Final = 1

MAX_VECTORS = 8
"""Vectors of partial results."""

_LEAST_WORK: Final = 1 << 17
"""Operations below which one thread is done before another has woken up; some microseconds."""

_CALL: Final = 4
"""Operations that an elementary function is taken for."""

_LONG: Final = 64
"""Vectors in a row for which the last ones may be reduced an element at a time."""

_FEW: Final = 4
"""This many partial results are reduced one after the other; more are first reduced to a quarter,
as vectors."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The knobs."""

    partial: int
    """Partial results of a reduction, a power of two; need not divide the row. At most the row."""
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
    widths: tuple[int, ...]
    """Lengths of the other loops along a row."""


def match(sch: Schedule) -> RowReduction | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    trial = sch.copy()
    _inline(trial)
    rvs = trial.get_child_blocks(trial.get_sblock("root"))
    blocks = [trial.get(rv) for rv in rvs]
    reductions = [block for block in blocks if not is_spatial(block)]
    ends = [rv for rv in rvs if not trial.get_consumers(rv)]
    shapes = {(math.prod(_extents(block)), _row(block)) for block in reductions}
    if len(shapes) != 1 or len(ends) != 1 or not all(map(_along_memory, reductions)):
        return None
    ((rows, row),) = shapes
    others = [_extents(block) for block in blocks if is_spatial(block)]
    if row == 1 or any(_leading(extents, rows) is None for extents in others):
        return None
    lengths = {math.prod(extents) // rows for extents in others} - {1}
    return RowReduction(rows, row, max(map(bits, reductions)), tuple(sorted(lengths)))


def settings(found: RowReduction, hardware: Hardware) -> Iterator[Vectors]:
    """Yield every setting: powers of two up to some vectors."""
    lanes = hardware.lanes(found.bits)
    for partial in _powers(min(found.row, MAX_VECTORS * lanes)):
        for width in _powers(2 * lanes if found.widths else 1):
            if all(length % width == 0 for length in found.widths):
                yield Vectors(partial, width)


def fill(found: RowReduction, hardware: Hardware) -> Vectors:
    """Return the knobs for a processor, without measuring.

    Some vectors of partial results hide the latency of an addition if they divide the row.
    """
    lanes = hardware.lanes(found.bits)
    exact = math.gcd(found.row, 4 * lanes)
    most = max(_powers(min(found.row, lanes))) * (4 if found.row >= _LONG * lanes else 1)
    width = math.gcd(lanes, *found.widths) if found.widths else 1
    return Vectors(
        partial=exact if 2 * exact >= most else most, width=width if 2 * width >= lanes else 1
    )


def apply(sch: Schedule, found: RowReduction, knobs: Vectors) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    _inline(sch)
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    steps = [step for block in blocks for step in _steps(sch, block, knobs.partial)]
    row = _row_loop(sch, steps[-1], found.rows)
    if found.rows > 1 and sum(map(_work, map(sch.get, steps))) >= _LEAST_WORK:
        sch.parallel(row)
    for step in reversed(steps[:-1]):
        sch.compute_at(step, row)
    for step in steps:
        _vectorize(sch, step, found, knobs)


def _inline(sch: Schedule) -> None:
    """Inline what every consumer reads once an element and can compute again at little cost."""
    for rv in sch.get_child_blocks(sch.get_sblock("root")):
        block, consumers = sch.get(rv), sch.get_consumers(rv)
        alike = all(_count(sch.get(consumer)) == _count(block) for consumer in consumers)
        cheap = alike and (len(consumers) == 1 or not _calls(block))
        if consumers and (is_copy(block) or (is_spatial(block) and cheap)):
            sch.compute_inline(rv)


def _steps(sch: Schedule, block: SBlockRV, partial: int) -> list[SBlockRV]:
    """Split a reduction into steps, the vectors first; return the blocks in order."""
    if is_spatial(sch.get(block)):
        return [block]
    spatial = len(_extents(sch.get(block)))
    row = sch.fuse(*sch.get_loops(block)[spatial:])
    steps = []
    while int(sch.get(row).extent) > _FEW and partial > 1:
        _, lane = sch.split(row, [None, partial])
        steps.append(sch.rfactor(lane, spatial))
        row = sch.get_loops(block)[-1]
        partial = max(_FEW, partial // _FEW) if partial > _FEW else 1
    return [*steps, block]


def _row_loop(sch: Schedule, last: SBlockRV, rows: int) -> LoopRV:
    """Return the loop over rows around the last step."""
    loops = sch.get_loops(last)
    leading = _leading(_extents(sch.get(last)), rows)
    return sch.fuse(*loops[:leading]) if leading else sch.add_unit_loop(loops[0])


def _vectorize(sch: Schedule, step: SBlockRV, found: RowReduction, knobs: Vectors) -> None:
    _, *loops = sch.get_loops(step)
    block = sch.get(step)
    if not loops:
        return
    if is_spatial(block):
        loop = sch.fuse(*loops)
        if knobs.width > 1 and int(sch.get(loop).extent) % knobs.width == 0:
            sch.vectorize(sch.split(loop, [None, knobs.width])[1])
    elif len(loops) > 1:
        _sum_vectors(sch, step, found.row)
    else:
        sch.unroll(loops[0])


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


def _along_memory(block: SBlock) -> bool:
    """Tell whether the block reduces one value along the last axes of an operand."""
    if not hasattr(block.body, "value"):  # several at a time, such as a maximum and its index
        return False
    along = [axis.var for axis in block.iter_vars if axis.iter_type != SPATIAL]
    indices = [[index.min for index in read.region[-len(along) :]] for read in block.reads]
    return any(_same(last, along) for last in indices)


def _same(indices: Sequence[Expr], variables: Sequence[Var]) -> bool:
    pairs = zip(indices, variables, strict=False)
    return len(indices) == len(variables) and all(a.same_as(b) for a, b in pairs)


def _leading(extents: list[int], rows: int) -> int | None:
    """Return how many leading axes are the rows, at most, or None if none are."""
    counts = (count for count in range(len(extents) + 1) if math.prod(extents[:count]) == rows)
    return max(counts, default=None)


def _work(block: SBlock) -> int:
    return _count(block) * (_CALL if _calls(block) else 1)


def _calls(block: SBlock) -> bool:
    found = tvm_ffi.structural_walk(block.body, (Call, tvm_ffi.VisitInterrupt))
    return found is not None


def _extents(block: SBlock) -> list[int]:
    return [int(axis.dom.extent) for axis in block.iter_vars if axis.iter_type == SPATIAL]


def _row(block: SBlock) -> int:
    return _count(block) // math.prod(_extents(block))


def _count(block: SBlock) -> int:
    return math.prod(int(axis.dom.extent) for axis in block.iter_vars)


def _powers(most: int) -> list[int]:
    """Return the powers of two up to a number."""
    return [1 << exponent for exponent in range(most.bit_length())]
