"""Template for reductions along memory: softmax, layer normalization, means, and their like.

One loop goes over the rows, and everything that depends on a row is computed while the row is in
the cache. A reduction first makes `partial` results at once, as vectors; these are reduced to a
quarter, again as vectors, until few are left. Elementwise steps in between work in vectors too.

Example: softmax of [8, 1000] with `partial` 8 and `width` 8.

    for row in range(8):
        most[0:8] = -inf
        for step in range(125):                       # 1000 elements, 8 at a time
            most[0:8] = max(most[0:8], x[row, 8 * step : 8 * step + 8])
        most[0:4] = max(most[0:4], most[4:8])         # 8 results to 4
        m = max(most[0], ..., most[3])                # 4 results to 1, unrolled
        for step in range(125):
            e[8 * step : 8 * step + 8] = exp(x[row, 8 * step : 8 * step + 8] - m)
        ...                                           # the sum of e likewise, then the division
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import SBlock, SBlockRealize, Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import For, Stmt, Var

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import bits, extents_of, is_spatial
from autopipe.schedules.analysis.choices import chooses_by_place
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.rows import (
    blocks_of,
    count,
    gather,
    in_order,
    inline,
    looks_up,
    one_result,
    reduces_one,
    repeats,
    row_loop,
    sums_several,
    work,
)
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import OPERATIONS
from autopipe.schedules.templates.template import Template

MAX_VECTORS = 8
"""Most vectors of partial results."""

_LONG: Final = 64
"""Vectors in a row so long that its rest may be reduced an element at a time."""

_LEAST_WHOLE: Final = 8
"""Fewest partial results that pay, where they have to divide the row."""

_LEAST_ROW: Final = 8
"""Elements of the shortest row that alone pays for partial results; windows of pools have fewer."""

_REST, _EVEN = 64, 16
"""From so long a row on, one that so many elements do not divide alone is left to another template:
LLVM made no vectors of the guarded rest of `max` where indices have 64 bits, 45 us against 3."""

_OFTEN: Final = 4
"""Reads of each element from which on tiles pay."""

_SEEN: Final = 2
"""Axes that TVM sees to be one in memory when they are fused."""

_UNROLLED: Final = 16
"""Longest loop that is unrolled."""

_FEW: Final = 4
"""Up to this many partial results are reduced one after the other; more are first reduced to a
quarter, as vectors."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The knobs."""

    partial: int
    """Partial results of a reduction: a power of two, at most half the row. They need not divide
    the row."""
    width: int
    """Elements in a vector of any other loop along a row: a power of two that divides the row. 1
    leaves such loops to LLVM, which vectorizes rows of any length."""
    nested: bool = False
    """Whether the outermost axis of a row stays a loop of its own. TVM sees that vectors lie in
    memory where two axes are fused, and not where three are, as the channels of a group are."""


@dataclass(frozen=True, slots=True)
class RowReduction:
    """What the knobs depend on in a function that reduces rows."""

    rows: int
    """Number of rows."""
    row: int
    """Elements in a row."""
    bits: int
    """Size of the result of the reduction, in bits."""
    whole: bool
    """Whether the partial results have to divide the row: TVM vectorizes a block of several sums
    only then, and does not compile a guarded rest whose indices come from data."""
    widths: tuple[int, ...]
    """Extents of the other loops along a row."""
    inner: int = 0
    """Elements of a row for each step of its outermost axis, where it has three and more."""


class RowReductionTemplate(Template[RowReduction, Vectors]):
    """Reductions along rows, and what is done with the result in these rows."""

    name = "row_reduction"
    version = schedule_version("row_reduction")

    def match(self, sch: Schedule) -> RowReduction | None:
        """Return what the knobs depend on, or None if the function is for another template."""
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
        more = rows == 1 and count(blocks[-1]) > row  # what follows is more work, for all threads
        if more or row == 1 or loop is None or _is_for_others(blocks, len(reductions), row):
            return None
        gather(trial, steps, loop)
        if any(repeats(trial, step) for step in steps):
            return None
        lengths = {count(block) // rows for block in blocks if is_spatial(block)} - {1}
        whole = any(sums_several(block) or looks_up(block) for block in reductions)
        if whole and row % _LEAST_WHOLE:
            return None
        widest = max(map(bits, reductions))
        inner = _inner(trial, steps, row)
        return RowReduction(rows, row, widest, whole, tuple(sorted(lengths)), inner)

    def settings(self, reduction: RowReduction, hardware: HardwareParams) -> Iterator[Vectors]:
        """Yield every setting: powers of two up to `MAX_VECTORS` and 2 registers."""
        lanes = hardware.lanes(reduction.bits)
        for partial in _powers(min(reduction.row // 2, MAX_VECTORS * lanes)):
            if reduction.whole and reduction.row % partial:
                break
            for width in _powers(2 * lanes if reduction.widths else 1):
                if all(length % width == 0 for length in reduction.widths):
                    yield Vectors(partial, width)
                    if reduction.inner and reduction.inner % max(partial, width) == 0:
                        yield Vectors(partial, width, nested=True)

    def fill(self, reduction: RowReduction, hardware: HardwareParams) -> Vectors:
        """Return the knobs for a processor, without measuring.

        Four vectors of partial results hide the latency of an addition, if they divide the row or
        the row is long.
        """
        lanes = hardware.lanes(reduction.bits)
        even = math.gcd(reduction.inner, 4 * lanes)
        if reduction.inner and even >= lanes:
            return Vectors(even, math.gcd(even, lanes) if reduction.widths else 1, nested=True)
        half = max(_powers(reduction.row // 2))
        exact = min(half, math.gcd(reduction.row, 4 * lanes))
        most = min(half, 4 * lanes if reduction.row >= _LONG * lanes else lanes)
        width = math.gcd(lanes, *reduction.widths) if reduction.widths else 1
        return Vectors(
            partial=exact if reduction.whole or 2 * exact >= most else most,
            width=width if 2 * width >= lanes else 1,
        )

    def apply(self, sch: Schedule, reduction: RowReduction, knobs: Vectors) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        inline(sch)
        vectors, steps = [], []
        for block in blocks_of(sch):
            partial = _partial(sch, block, knobs)
            vectors += partial
            steps += [*partial, block]
        loop = row_loop(sch, steps[-1], reduction.rows)
        if loop is None:
            raise ScheduleError("the rows are no loops around the last block")
        if reduction.rows > 1 and sum(work(sch.get(step)) for step in steps) >= OPERATIONS:
            sch.parallel(loop)
        gather(sch, steps, loop)
        for step in steps:
            if any(step.same_as(vector) for vector in vectors):
                _sum_vectors(sch, step, reduction.row)
            else:
                _go_along(sch, step, knobs)


ROW_REDUCTION: Final = RowReductionTemplate()


def _inner(sch: Schedule, steps: Sequence[SBlockRV], row: int) -> int:
    """Return `inner` of `RowReduction`, for steps that were moved into a loop over rows."""
    axes = [extents_of(sch.get(step), spatial=False) for step in steps]
    loops = [tuple(int(sch.get(loop).extent) for loop in sch.get_loops(step)[1:]) for step in steps]
    wanted = {own or along for own, along in zip(axes, loops, strict=True) if own or along}
    (first, *others) = [tuple(n for n in extents if n > 1) for extents in wanted]
    if len(first) <= _SEEN or any(math.prod(one) != row or one[:1] != first[:1] for one in others):
        return 0
    return row // first[0]


def _is_for_others(blocks: Sequence[SBlock], reductions: int, row: int) -> bool:
    """Tell whether others do better.

    They are tiles, where a product reads all again and again, and template `reduction` for a row
    alone: it takes the rest of that without a guard.
    """
    if reductions == 1 and row < _LEAST_ROW:
        return True
    if any(map(_reads_often, blocks)):
        return True
    return len(blocks) == 1 and row >= _REST and row % _EVEN > 0 and reduces_one(blocks[0])


def _partial(sch: Schedule, block: SBlockRV, knobs: Vectors) -> list[SBlockRV]:
    """Split a reduction into steps that leave ever fewer partial results; return these steps.

    Example: a row of 1000 and `partial` 64 give steps that leave 64, 16 and 4 results; the block
    itself reduces these 4. The steps are `rfactor`s of TVM.
    """
    if is_spatial(sch.get(block)):
        return []
    spatial, partial = len(extents_of(sch.get(block))), knobs.partial
    row = sch.fuse(*sch.get_loops(block)[spatial + knobs.nested :])
    steps = []
    while int(sch.get(row).extent) > _FEW and partial > 1:
        _, lane = sch.split(row, [None, partial])
        steps.append(sch.rfactor(lane, spatial))
        row = sch.get_loops(block)[-1]
        partial = max(_FEW, partial // _FEW) if partial > _FEW else 1
    return steps


def _go_along(sch: Schedule, step: SBlockRV, knobs: Vectors) -> None:
    """Vectorize an elementwise step along a row, or unroll the last step of a reduction."""
    _, *loops = sch.get_loops(step)
    if not loops:
        return
    width, nested = knobs.width, knobs.nested and len(loops) > 1
    loop = sch.fuse(*loops[nested:])
    extent = int(sch.get(loop).extent)
    if not is_spatial(sch.get(step)):
        if extent <= _UNROLLED:
            sch.unroll(loop)
    elif width > 1 and extent % width == 0:
        sch.vectorize(sch.split(loop, [None, width])[1])


def _sum_vectors(sch: Schedule, step: SBlockRV, row: int) -> None:
    """Vectorize a step that reduces many vectors to one."""
    _, lane, *outer, vectors = sch.get_loops(step)
    lanes, count = (int(sch.get(loop).extent) for loop in (lane, vectors))
    short = not outer and lanes * (count - 1) < row < lanes * count
    if short:
        _guard(sch, lane, row)
        _, lane, *outer, vectors = sch.get_loops(step)
        if not chooses_by_place(sch.get(step)):
            sch.annotate(vectors, "pragma_loop_partition_hint", True)  # noqa: FBT003 - TVM's way
    sch.reorder(*outer, vectors, lane)
    sch.vectorize(lane)
    if count <= _FEW and not short:
        sch.unroll(vectors)
    start = sch.decompose_reduction(step, [*outer, vectors][0])
    sch.vectorize(sch.get_loops(start)[-1])


def _guard(sch: Schedule, lane: LoopRV, row: int) -> None:
    """Keep a step inside a row that its vectors do not divide.

    `compute_at` of TVM 0.27 drops the predicate that `split` made for this, without an error.
    """
    sref = sch.get_sref(lane)
    first, lanes = sref.stmt.loop_var, int(sref.stmt.extent)

    def guarded(stmt: Stmt, turn: Var) -> Stmt:
        if isinstance(stmt, SBlockRealize):
            inside = turn * lanes + first < row  # an axis of one step has no loop among the turns
            return SBlockRealize(stmt.iter_values, inside, stmt.block)
        body = guarded(stmt.body, stmt.loop_var)
        return For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body)

    sch.state.replace(sref, guarded(sref.stmt, first))


def _reads_often(block: SBlock) -> bool:
    """Tell whether a block sums products of operands that are all read often."""
    product = Product.of(block) if not is_spatial(block) else None
    if product is None:
        return False
    sizes = [math.prod(map(int, load.source.ty.shape)) for load in product.loads]
    return _OFTEN * max(sizes) <= count(block)


def _fits(block: SBlock) -> bool:
    return (reduces_one(block) or sums_several(block)) and in_order(block)


def _row(block: SBlock) -> int:
    return math.prod(extents_of(block, spatial=False))


def _powers(most: int) -> list[int]:
    """Return the powers of two up to a number."""
    return [1 << exponent for exponent in range(most.bit_length())]
