"""Template for reductions along rows of any length: softmax, normalizations, means.

Each step of a row is done while the row is in the cache: in whole vectors, then in what is left of
one. Sizes may be dynamic. A reduction has as many partial results as hide the latency of an
addition; fewer where a row of elementary functions is summed, such as a softmax, as the function
needs registers. Template `row_reduction` does what has no axis of rows: totals, and groups of
channels.

Example: the sum of each row of x [rows, length], with vectors of 16.

    for row in parallel(rows):
        partial[0:16] = 0
        for step in range(length // 16):
            partial[0:16] += x[row, 16 * step : 16 * step + 16]
        for rest in range(length % 16):
            partial[rest] += x[row, length // 16 * 16 + rest]
        y[row] = partial[0] + partial[1] + ... + partial[15]    # halves of vectors first
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import tvm
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes.kernel_sizes import OpenSizes, known_of
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import (
    SPATIAL,
    Extent,
    enough,
    is_spatial,
    lengths_of,
    number_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    Values,
    among,
    distinct,
    either,
    elements,
    lanes,
    substitute,
    unfold,
    whole,
)
from autopipe.schedules.analysis.row_axes import (
    StoredValue,
    combines_terms,
    count_row_axes,
    stores_of,
)
from autopipe.schedules.analysis.rows import blocks_of, cost, count, inline, is_step, one_result
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import OPERATIONS
from autopipe.schedules.primitives import rewrite
from autopipe.schedules.templates.row_reduction import ROW_REDUCTION
from autopipe.schedules.templates.template import Template

_FEW: Final = 4
"""Up to so many partial results are combined one by one."""

_VECTORS: Final = 4
"""Vectors of partial results that hide the latency of an addition."""

_LONG: Final = 64
"""Vectors in a row so long that what is left of `_VECTORS` may be reduced in shorter ones."""

_LEAST: Final = 32
"""Elements of the shortest row whose elementary functions need registers."""


@dataclass(frozen=True, slots=True)
class RowLoops:
    """What the knobs depend on."""

    leading: int
    """Number of axes that count rows, the first ones of each block."""
    bits: int
    """Size of a result of the reductions, in bits."""
    inlined: tuple[str, ...]
    """Blocks that are computed where they are read."""
    is_dynamic: bool
    """Whether sizes are dynamic."""
    row: int
    """Elements of a row."""
    sums_functions: bool
    """Whether a long row of elementary functions is computed and then reduced."""


@dataclass(frozen=True, slots=True)
class RowVectors:
    """The knobs."""

    width: int
    """Elements in a vector, and partial results of a reduction."""


class RowsTemplate(Template[RowLoops, RowVectors]):
    """Reductions along rows of any length."""

    name = "rows"
    version = schedule_version("rows")
    serves_dynamic = True

    def match(self, sch: Schedule) -> RowLoops | None:
        """Return what the knobs depend on, or None if the function is for another template."""
        reduction = ROW_REDUCTION.match(sch)
        if reduction is None:
            return None
        trial = sch.copy()
        steps = [trial.get(rv) for rv in blocks_of(trial)]
        inline(trial)
        blocks = [trial.get(rv) for rv in blocks_of(trial)]
        left = {block.name_hint for block in blocks}
        if not one_result(trial) or not all(map(combines_terms, blocks)):
            return None
        leading = count_row_axes(blocks)
        if leading is None:
            return None
        return RowLoops(
            leading, reduction.bits,
            tuple(step.name_hint for step in steps if step.name_hint not in left),
            is_dynamic=False, row=reduction.row,
            sums_functions=len(steps) > 1 and reduction.row >= _LEAST and _sums_functions(steps),
        )  # fmt: skip

    def prove_at_every_size(self, sch: Schedule, match: RowLoops) -> RowLoops | None:
        """Return a match at specialized sizes with the rows of the function for every size.

        An axis that probably has one element may have more: [1, 1, 64] at specialized sizes may be
        rows of 64 along two axes, [batch, length, 64].
        """
        trial = sch.copy()
        for name in match.inlined:
            trial.compute_inline(trial.get_sblock(name))
        leading = count_row_axes([trial.get(rv) for rv in blocks_of(trial)])
        if leading is None:
            return None
        return replace(match, leading=leading, is_dynamic=True)

    def settings(self, match: RowLoops, hardware: HardwareParams) -> Iterator[RowVectors]:
        """Yield vectors of several registers, and of half a one where sizes are dynamic."""
        lanes = hardware.lanes(match.bits)
        if match.is_dynamic:
            widths = [lanes, 2 * lanes, lanes // 2]
        else:
            widths = [2 * lanes, lanes, _VECTORS * lanes, *_even_widths(match, lanes)]
        yield from (RowVectors(width) for width in dict.fromkeys(widths) if width)

    def fill(self, match: RowLoops, hardware: HardwareParams) -> RowVectors:
        """Return the knobs for a processor, without measuring."""
        if match.is_dynamic or match.sums_functions:
            return next(self.settings(match, hardware))
        even = _even_widths(match, hardware.lanes(match.bits))
        return RowVectors(even[0]) if even else next(self.settings(match, hardware))

    def apply(self, sch: Schedule, match: RowLoops, knobs: RowVectors) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        known = known_of(sch.mod["main"])
        for name in match.inlined:
            sch.compute_inline(sch.get_sblock(name))
        if known is None:  # a row that is no longer than a page is then on the stack
            for rv in blocks_of(sch)[:-1]:
                sch.set_scope(rv, 0, "local")
        blocks = [sch.get(rv) for rv in blocks_of(sch)]
        rewrite(sch, _write(blocks, match, knobs.width, known))


ROWS: Final = RowsTemplate()


def _write(
    blocks: Sequence[SBlock], match: RowLoops, width: int, known: OpenSizes | None
) -> tvm.tirx.Stmt:
    """Return the loop over all rows, in parallel where that pays."""
    with IRBuilder() as builder:
        for parallel in either(_pays(blocks, known)):
            _rows(blocks, match, width, T.parallel if parallel else T.serial)
    return builder.get()


def _pays(blocks: Sequence[SBlock], known: OpenSizes | None) -> bool | Expr:
    """Tell whether threads pay; a condition if that hangs on open sizes."""
    steps = ([cost(one), *lengths_of(one), *lengths_of(one, spatial=False)] for one in blocks)
    work = [product_of(lengths) for lengths in steps]
    return enough([sum(work[1:], start=work[0])], OPERATIONS, known)


def _rows(blocks: Sequence[SBlock], match: RowLoops, width: int, loop: Any) -> None:  # noqa: ANN401 - a function of TVM's builder
    """Write the loop over all rows."""
    rows = lengths_of(blocks[-1])[: match.leading]
    dtype = blocks[-1].iter_vars[0].var.ty.dtype
    number = partial(number_of, dtype=dtype)
    with loop(number(0), number(product_of(rows))) as job, T.sblock("rows"):
        written = [region.source for block in blocks for region in block.writes]
        read = [region.source for block in blocks for region in block.reads]
        T.reads(*(whole(buffer) for buffer in distinct(read) if not among(buffer, written)))
        T.writes(*(whole(buffer) for buffer in distinct(written)))
        at = [T.Bind(index) for index in unfold(rows, job, job=True)]
        for before, block, after in zip([None, *blocks], blocks, [*blocks[1:], None], strict=False):
            if not is_spatial(block):
                step = before if before is not None and is_step(before, block) else None
                _reduced(block, at, width, number, step)
            elif after is None or not is_step(block, after):
                _each(block, at, width, number)


def _each(block: SBlock, at: Sequence[Expr], width: int, number: Callable[[Extent], Expr]) -> None:
    """Write a step that computes each element of a row."""
    axes = [axis.var for axis in block.iter_vars]
    lengths = lengths_of(block)[len(at) :]
    for index in _along(lengths, width, number):
        _stored(block, list(zip(axes, [*at, *index], strict=True)))


def _stored(block: SBlock, values: Values) -> None:
    """Write what a block stores for some values of its axes."""
    store = block.body
    T.buffer_store(
        store.buffer,
        substitute(store.value, values),
        [substitute(place, values) for place in store.indices],
    )


def _along(
    lengths: Sequence[Extent], width: int, number: Callable[[Extent], Expr]
) -> Iterator[list[Expr]]:
    """Write the loops over the axes of a row, the last one in vectors; yield the indices."""
    if not lengths:
        yield []
        return
    *outer, last = lengths
    with ExitStack() as loops:
        before = [loops.enter_context(T.serial(number(0), number(n))) for n in outer]
        for element in elements(last, width, number):
            yield [*before, element]


def _reduced(
    block: SBlock,
    at: Sequence[Expr],
    width: int,
    number: Callable[[Extent], Expr],
    step: SBlock | None,
) -> None:
    """Write a reduction of a row, `width` partial results at a time.

    `step` makes what is reduced, if that is not there yet.
    """
    updates, firsts = stores_of(block.body), stores_of(block.init)
    spatial = [axis for axis in block.iter_vars if axis.iter_type == SPATIAL]
    summed = [axis.var for axis in block.iter_vars if axis.iter_type != SPATIAL]
    rows: Values = [
        (axis.var, place)
        for axis, place in zip(
            spatial, [*at, *(axis.dom.min for axis in spatial[len(at) :])], strict=True
        )
    ]
    parts = [
        T.sblock_alloc_buffer((width,), str(buffer.ty.dtype), scope="local")
        for buffer, _, _ in updates
    ]
    with T.vectorized(number(0), number(width)) as lane:
        for buffer, (_, value, _) in zip(parts, firsts, strict=True):
            T.buffer_store(buffer, value, [lane])
    lengths = lengths_of(block, spatial=False)
    outer = [] if all(isinstance(n, int) for n in lengths) else lengths[:-1]  # else axes are one
    along = lengths[len(outer) :]
    with ExitStack() as loops:
        before = [loops.enter_context(T.serial(number(0), number(n))) for n in outer]
        for index, lane in lanes(product_of(along), width, number):
            values = [*rows, *zip(summed, [*before, *unfold(along, index)], strict=True)]
            if step is not None:
                places = [value for _, value in values]
                _stored(step, list(zip([a.var for a in step.iter_vars], places, strict=True)))
            _add(updates, parts, values, lane)
    for place, (target, value, indices) in enumerate(updates):
        total = _combined(type(value), parts[place], width, number)
        T.buffer_store(target, total, [substitute(i, rows) for i in indices])


def _add(
    updates: Sequence[StoredValue], partial: Sequence[Any], values: Values, lane: Expr
) -> None:
    """Write one step of the reductions."""
    totals = [buffer for buffer, _, _ in updates]

    def load(read: TensorLoad) -> Expr:
        for total, buffer in zip(totals, partial, strict=True):
            if read.source.same_as(total):
                return buffer[lane]
        return substitute(read, values)

    added = [substitute(value, values, load) for _, value, _ in updates]
    for buffer, value in zip(partial, added, strict=True):
        T.buffer_store(buffer, value, [lane])


def _combined(
    kind: Any,  # noqa: ANN401 - a class of TVM
    partial: tvm.ir.Expr,
    width: int,
    number: Callable[[Extent], Expr],
) -> Expr:
    """Return what partial results come to: half of them with the other half, as vectors.

    The last few are combined in pairs: ((a + b) + (c + d)).
    """
    while width > _FEW:
        width //= 2
        with T.vectorized(number(0), number(width)) as lane:
            T.buffer_store(partial, kind(partial[lane], partial[lane + width]), [lane])
    values = [partial[number(place)] for place in range(width)]
    while len(values) > 1:
        paired = zip(values[::2], values[1::2], strict=False)
        values = [kind(one, other) for one, other in paired] + (
            [values[-1]] if len(values) % 2 else []
        )
    return values[0]


def _even_widths(match: RowLoops, lanes: int) -> list[int]:
    """Return the width that divides a row and hides latency, or else one for a long row."""
    even = math.gcd(match.row, _VECTORS * lanes)
    most = _VECTORS * lanes if match.row >= _LONG * lanes else lanes
    most = min(most, 1 << (match.row // 2).bit_length() - 1)
    return [even] if 2 * even >= most else []


def _sums_functions(blocks: Sequence[SBlock]) -> bool:
    """Tell whether a row of elementary functions, such as exp, is computed and then reduced."""
    last = max((at for at, block in enumerate(blocks) if not is_spatial(block)), default=-1)
    return any(count(block) > _LEAST and cost(block) > 1 for block in blocks[: last + 1])
