"""Template for reductions along rows of any length: softmax, normalizations, means.

Each step of a row is computed while the row is in the cache: in whole vectors, then the remainder.
Sizes may be dynamic. A reduction has enough partial results to hide the latency of an addition;
fewer where a row of elementary functions is summed, such as a softmax, as the function needs
registers. A total is a single row; the channels of a group are a loop in its row.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tvm.s_tir import SBlock, Schedule

from autopipe.compiler.dynamic_sizes.kernel_sizes import read_dynamic_sizes
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import extents_of, find_output_bits, is_spatial
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.rows import (
    blocks_of,
    combines_terms,
    count_iterations,
    count_row_axes,
    estimate_body_cost,
    has_indirect_loads,
    has_one_result,
    inline_cheap_blocks,
    is_in_memory_order,
)
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import inline_blocks, rewrite_function
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling.row_loops import split_row, write_rows

_VECTORS: Final = 4
"""Vectors of partial results that hide the latency of an addition."""

_MIN_LONG_VECTORS: Final = 64
"""Vectors in a row from which on a remainder of `_VECTORS` may be reduced in shorter ones."""

_LEAST_ROW: Final = 8
"""Elements of the shortest row for which partial results pay; pooling windows are shorter. A
channel of a group must be a multiple: of 7 x 7 pixels, `reduction` takes 2.4 us in place of 6.1."""

_REST, _EVEN_ROW = 64, 16
"""Rows of at least `_REST` elements that are no multiple of `_EVEN_ROW` are left to `reduction`:
the product of a row of 1000 and [512, 1000] takes 13 us in place of 23."""

_MIN_READS_OF_TILES: Final = 4
"""Reads of each element from which on tiles pay."""

_MIN_CALL_ROW: Final = 32
"""Elements of the shortest row whose elementary functions need registers."""


@dataclass(frozen=True, slots=True)
class RowLoops:
    """A matched function: its rows, and how they are reduced."""

    leading: int
    """Number of axes that count rows, the first ones of each block."""
    bits: int
    """Size of a result of the reductions, in bits."""
    inlined: tuple[str, ...]
    """Blocks that are computed where they are read."""
    is_dynamic: bool
    """Whether sizes are dynamic."""
    row: int
    """Elements of a row that are reduced in one loop."""
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
        """Match the function, or return None if the template does not apply."""
        trial = sch.copy()
        steps = [trial.get(rv) for rv in blocks_of(trial)]
        inline_cheap_blocks(trial)
        blocks = [trial.get(rv) for rv in blocks_of(trial)]
        reductions = [block for block in blocks if not is_spatial(block)]
        if (
            min(map(count_iterations, blocks)) < 1
            or not has_one_result(trial)
            or not all(map(_is_row_step, blocks))
        ):
            return None
        shapes = {
            (math.prod(extents_of(block)), math.prod(extents_of(block, spatial=False)))
            for block in reductions
        }
        if len(shapes) != 1 or (leading := count_row_axes(blocks)) is None:
            return None
        ((rows, row),) = shapes
        has_large_epilogue = (
            rows == 1 and count_iterations(blocks[-1]) > row
        )  # the epilogue is more work, which should run in parallel
        if has_large_epilogue or row < (_LEAST_ROW if len(reductions) == 1 else 2):
            return None
        at_once = min(map(_count_fused_elements, reductions))
        if at_once < row and at_once % _LEAST_ROW:
            return None
        if len(blocks) == 1 and row >= _REST and row % _EVEN_ROW:
            return None
        kept_names = {block.name_hint for block in blocks}
        return RowLoops(
            leading, max(map(find_output_bits, reductions)),
            tuple(step.name_hint for step in steps if step.name_hint not in kept_names),
            is_dynamic=False, row=at_once,
            sums_functions=len(steps) > 1 and row >= _MIN_CALL_ROW and _sums_functions(steps),
        )  # fmt: skip

    def prove_at_every_size(self, sch: Schedule, match: RowLoops) -> RowLoops | None:
        """Extend a match at specialized sizes to the rows of the function at every size.

        An axis of one element may have more at other sizes: [1, 1, 64] at specialized sizes may be
        rows of 64 along two axes, [batch, length, 64].
        """
        trial = sch.copy()
        inline_blocks(trial, match.inlined)
        leading = count_row_axes([trial.get(rv) for rv in blocks_of(trial)])
        if leading is None:
            return None
        return replace(match, leading=leading, is_dynamic=True)

    def settings(self, match: RowLoops, hardware: HardwareParams) -> Iterator[RowVectors]:
        """Yield vectors of several registers, and of half a register for dynamic sizes.

        The first are expected to be the fastest.
        """
        lanes = hardware.lanes(match.bits)
        if match.is_dynamic:
            widths = [lanes, 2 * lanes, lanes // 2]
        else:
            widths, even = [2 * lanes, lanes, _VECTORS * lanes], _list_even_widths(match, lanes)
            widths = [*widths, *even] if match.sums_functions else [*even, *widths]
        yield from (RowVectors(width) for width in dict.fromkeys(widths) if width)

    def apply(self, sch: Schedule, match: RowLoops, knobs: RowVectors) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        dynamic_sizes = read_dynamic_sizes(sch.mod["main"])
        inline_blocks(sch, match.inlined)
        if dynamic_sizes is None:  # a row that is no longer than a page is then on the stack
            for rv in blocks_of(sch)[:-1]:
                sch.set_scope(rv, 0, "local")
        blocks = [sch.get(rv) for rv in blocks_of(sch)]
        rewrite_function(sch, write_rows(blocks, match.leading, knobs.width, dynamic_sizes))


ROWS: Final = RowsTemplate()


def _is_row_step(block: SBlock) -> bool:
    """Tell whether a block is a step of rows.

    Tiles are faster for products with reused operands, and `reduction` for indirect loads.
    """
    if is_spatial(block):
        return combines_terms(block)
    others_are_faster = has_indirect_loads(block) or _has_reused_operands(block)
    return combines_terms(block) and is_in_memory_order(block) and not others_are_faster


def _has_reused_operands(block: SBlock) -> bool:
    """Tell whether a block sums products in which each operand is reused."""
    product = Product.of(block)
    if product is None:
        return False
    sizes = [math.prod(map(int, load.source.ty.shape)) for load in product.loads]
    return _MIN_READS_OF_TILES * max(sizes) <= count_iterations(block)


def _count_fused_elements(block: SBlock) -> int:
    """Count the elements of a row that are reduced in one loop."""
    _, along = split_row(extents_of(block, spatial=False))
    return math.prod(map(int, along))


def _list_even_widths(match: RowLoops, lanes: int) -> list[int]:
    """Return the width that divides a row and hides latency, as a list; [] if there is none."""
    even = math.gcd(match.row, _VECTORS * lanes)
    most = _VECTORS * lanes if match.row >= _MIN_LONG_VECTORS * lanes else lanes
    most = min(most, 1 << (match.row // 2).bit_length() - 1)
    return [even] if 2 * even >= most else []


def _sums_functions(blocks: Sequence[SBlock]) -> bool:
    """Tell whether a row of elementary functions, such as exp, is computed and then reduced."""
    last = max((at for at, block in enumerate(blocks) if not is_spatial(block)), default=-1)
    return any(
        count_iterations(block) > _MIN_CALL_ROW and estimate_body_cost(block) > 1
        for block in blocks[: last + 1]
    )
