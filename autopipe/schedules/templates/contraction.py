"""Template for sums of products, and for other reductions whose outputs fill vectors.

A tile of outputs, `rows` neighbours along one axis by `columns` along another, is summed in
registers over the whole reduction. The epilogue (bias, activation, residual) is computed on the
tile before it leaves the registers. Weights whose layout is free are packed, so that a tile reads
them in order. `autopipe/schedules/tiling/` does the work; its docstring shows an example.

With static shapes any reducer is served (max, min, product, and, or), any value that is reduced
(squared distances, sums of two operands, guarded products) and several results at once (max and
argmax).

Example: c[i, j] = min over k of a[i, k] + b[k, j] of [112, 64] and [64, 96], in tiles of 6 x 16.

    for i, j in grid(19, 6):
        lowest = full((6, 16), inf)            # 12 registers of 8 floats
        for k in range(64):
            for r, c in unrolled(6, 16):
                lowest[r, c] = min(lowest[r, c], a[row + r, k] + b[k, 16 * j + c])
        c[row : row + 6, 16 * j : 16 * j + 16] = lowest
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import tvm
from tvm.s_tir import SBlock, Schedule, ScheduleError

from autopipe.compiler.dynamic_sizes.kernel_sizes import read_dynamic_sizes
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import is_large_enough, is_whole
from autopipe.schedules.analysis.dot_products import DotProduct
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.rows import count_iterations
from autopipe.schedules.analysis.single_reduction import SingleReduction
from autopipe.schedules.cost import choose_threshold
from autopipe.schedules.guarded import guard_nest, guard_parallel_loops
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import ELEMENTS
from autopipe.schedules.primitives import inline_blocks, replace_sums, spread_vectors
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling import loops, promise, tile
from autopipe.schedules.tiling.form import Contraction, match_contraction
from autopipe.schedules.tiling.lines import extend_rows
from autopipe.schedules.tiling.nest import Nest
from autopipe.schedules.tiling.packing import Copy
from autopipe.schedules.tiling.padding import Padding
from autopipe.schedules.tiling.promise import find_threshold
from autopipe.schedules.tiling.tile import Tile
from autopipe.schedules.tiling.tile_levels import fit_smallest_size, list_tile_levels

_FEW_ROWS: Final = 8
"""Maximum number of rows for which an operand is not packed at run time."""

_LONG_SUM_STEPS: Final = 32
"""Steps of a sum that fill vectors well; of a shorter one only a single row is few."""

_MAX_UNROLLED_STEPS: Final = 9
"""Maximum steps that template `reduction` unrolls along a row, where it is preferred to tiles."""


class ContractionTemplate(Template[Contraction, Tile]):
    """Sums of products (convolutions, dense layers, matrix products), other reductions in tiles."""

    name = "contraction"
    version = schedule_version("contraction")
    serves_dynamic = True

    def match(self, sch: Schedule) -> Contraction | None:
        """Match the function, or return None if the template does not apply."""
        product = match_contraction(sch)
        if product is not None:
            return product
        match = match_contraction(sch, _match_reduction)
        if match is None or match.breadth == 1:  # template `reduction` makes vectors of steps
            return None
        return match if is_whole(sch, sch.get_sblock(match.name)) else None

    def prove_at_every_size(self, _sch: Schedule, match: Contraction) -> Contraction | None:
        """Return a match at specialized sizes for every size, if it sums products."""
        return match if match.sums_products else None

    def is_asked_last(self, match: Contraction) -> bool:
        """Tell whether an operand would be packed at run time for few rows, or rows are short.

        Example: [1, 1000] by the rows of [512, 1000] takes 143 us so, and 21 us in vectors along
        rows.

        Of other reductions, tiles of several rows are slower where rows have few steps. Columns of
        several axes, as the pixels of a channel, are longer in tiles: `reduction` serves rows of
        the last axis alone. The mean of 3 x 3 pixels of [3, 225, 225] takes 0.8 of the time so;
        sums of nine rows of 33 that are looked up, and of three uint8 each, half.
        """
        lines = match.lines
        if not match.sums_products:
            axes = [axis for axis in lines.columns if match.extents[axis] > 1]
            return (
                match.height > 1
                and len(axes) == 1
                and math.prod(match.terms) <= _MAX_UNROLLED_STEPS
            )
        needs_copy = not lines.free and False not in lines.packed
        return (
            needs_copy
            and match.products <= choose_unpacked_rows(match.terms[-1]) * match.column_elements
        )

    def settings(self, match: Contraction, hardware: HardwareParams) -> Iterator[Tile]:
        """Yield every setting of the knobs; other reductions do not prefetch."""
        if match.sums_products:
            return promise.list_settings(match, hardware)
        return _list_reduction_settings(match, _divide_registers(match, hardware))

    def fill(self, match: Contraction, hardware: HardwareParams) -> Tile:
        """Choose the knobs for a processor, without measuring."""
        if match.sums_products:
            return promise.choose_tile(match, hardware)
        tile = promise.choose_reduction_tile(match, hardware, self.settings(match, hardware))
        room = _divide_registers(match, hardware)
        return replace(tile, shared_from=_choose_reduction_threshold(match, tile, room))

    def estimate(self, match: Contraction, tile: Tile, hardware: HardwareParams) -> float:
        """Estimate the time of a setting, in cycles."""
        return promise.estimate_cycles(match, tile, hardware)

    def apply(self, sch: Schedule, match: Contraction, tile: Tile) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        read_product = partial(Product.of, dynamic_sizes=True)
        read = read_product if match.sums_products else _match_reduction
        tile_contraction(sch, match, tile, read)


CONTRACTION: Final = ContractionTemplate()


def choose_unpacked_rows(steps: int) -> int:
    """Return the maximum number of rows without packing, by the steps of the innermost sum.

    Example: 8 rows by those of [512, 1000] take 125 us in place of 198 as they lie; by those of
    [100, 24] they take 4.1 us in place of 1.7, as vectors along rows are few.
    """
    return _FEW_ROWS if steps >= _LONG_SUM_STEPS else 1


def _match_reduction(block: SBlock) -> Product | None:
    """Match any reduction; None for booleans.

    TVM 0.27 turns boolean vectors into int8 vectors, and then refuses to store them.
    """
    product = Product.reduced(block)
    dtypes = [str(store.buffer.ty.dtype) for store in product.stores] if product else []
    return None if "bool" in dtypes else product


def _divide_registers(match: Contraction, hardware: HardwareParams) -> HardwareParams:
    """Return the hardware with the registers that each result of an output has."""
    return replace(hardware, registers=hardware.registers // match.results)


def _list_reduction_settings(match: Contraction, hardware: HardwareParams) -> Iterator[Tile]:
    """Yield every tile, and once more where the processor decides otherwise on threads."""
    for candidate in tile.list_tiles(match, hardware):
        if not candidate.fetched and not candidate.ahead:
            yield candidate
            threshold = _choose_reduction_threshold(match, candidate, hardware)
            if threshold is not None:
                yield replace(candidate, shared_from=threshold)


def _choose_reduction_threshold(
    match: Contraction, tile: Tile, hardware: HardwareParams
) -> int | None:
    """Choose the knob `shared_from` of a reduction other than a product."""
    nanoseconds = promise.estimate_reduction_ns(match, tile, hardware)
    default = find_threshold(match, replace(tile, shared_from=None))
    return choose_threshold(match.products, default, nanoseconds, hardware)


def tile_contraction(
    sch: Schedule, contraction: Contraction, tile: Tile,
    read: Callable[[SBlock], Product | None] = Product.of, dot: DotProduct | None = None,
) -> None:  # fmt: skip
    """Schedule a reduction in tiles.

    `read` reads the reduction of a block, `dot` is the instruction that adds several products at
    once, if there is one. Raises ScheduleError where TVM refuses.
    """
    operands = build_operand_nests(sch, contraction, tile.width)
    product = read(sch.get(sch.get_sblock(contraction.name)))
    if product is None:
        raise ScheduleError(f"block {contraction.name} no longer sums products")
    last = contraction.find_last(sch)
    if not isinstance(product.steps[-1], int):  # no factor divides a dynamic extent
        tile = replace(tile, unroll=1)
    dynamic_sizes = read_dynamic_sizes(sch.mod["main"])
    if dynamic_sizes is not None:
        contraction = replace(contraction, lines=extend_rows(contraction.lines, product))
    nest = fit_smallest_size(Nest(contraction, tile, product, last, dot), dynamic_sizes)
    copy = Copy.of(nest) if tile.packed else None
    tile_levels = list_tile_levels(nest, copy, dynamic_sizes)
    is_parallel = is_large_enough(
        (*product.lengths, *product.steps), find_threshold(contraction, tile), dynamic_sizes
    )
    tiles = loops.build_tile_loops(tile_levels, is_parallel)
    totals = [store.buffer for store in product.stores]
    nests = [*operands, *([copy.write()] if copy else []), tiles]
    replace_sums(sch, nests, totals, last, [copy.buffer] if copy else [])
    if copy is not None and not contraction.lines.free:
        block = sch.get_sblock(copy.name)
        if not copy.across or count_iterations(sch.get(block)) >= ELEMENTS:
            spread_vectors(sch, block, tile.width)  # LLVM loads a few strided ones faster
        guard_parallel_loops(sch, copy.name)


def build_operand_nests(
    sch: Schedule, reduction: SingleReduction, width: int
) -> list[tvm.tirx.Stmt]:
    """Inline blocks, and build a nest for each operand that is computed first, as a padded image.

    Raises ScheduleError where TVM refuses.
    """
    inline_blocks(sch, (*reduction.inlined, *reduction.after[:-1]))
    producers = sch.get_producers(sch.get_sblock(reduction.name))
    operands = {sch.get(block).name_hint for block in producers}
    inline_blocks(sch, (name for name in reduction.before if name not in operands))
    nests, dynamic_sizes = [], read_dynamic_sizes(sch.mod["main"])
    for name in reduction.before:
        if name in operands:
            padding = Padding.of(sch.get(sch.get_sblock(name)))
            if padding is None:
                spread_vectors(sch, sch.get_sblock(name), width)
            nests.append(
                padding.write(width)
                if padding
                else guard_nest(sch.get(sch.get_loops(sch.get_sblock(name))[0]), dynamic_sizes)
            )
    return nests
