"""Template for AMX: matmuls and convolutions of int8 and bfloat16 in tile registers.

It serves the functions of `dot_product` on processors with Intel's AMX, if there are enough
contiguous rows. A block of outputs is summed in up to six tiles (`tiling/tile_kernel.py`), and the
epilogue is computed on the block before it leaves the cache.

Example: a 3x3 convolution of [1, 14, 14, 256] to 256 channels, in blocks of 2 lines of 14 pixels
and 32 channels, 56 blocks for two cores. The results of a block are written in the next iteration,
interleaved with its products (`tiling/tile_pipeline.py`):

    packed = w as [8, 3, 3, 64, 32, 4]                   # 32 channels at a time, by four
    for core in parallel(2):
        sums = [28, 32]                                  # on the stack
        for at in range(28 + 1):
            for row, vector in grid(28, 2):
                y[...] = rescaled(sums[row, 16 * vector : 16 * vector + 16])
            sums[...] = all products of block 28 * core + at, in four registers of 14 x 16 sums
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final, Literal

import tvm
from tvm.s_tir import SBlock, Schedule, ScheduleError

from autopipe.compiler.codegen.keep_in_registers import MOST
from autopipe.environment.machines import LINE_BYTES
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis import short_sums
from autopipe.schedules.analysis.blocks import axes_of, is_copy
from autopipe.schedules.analysis.expressions import find_steps
from autopipe.schedules.analysis.tile_products import COLUMNS, REGISTERS, TILE_PRODUCTS
from autopipe.schedules.cost import threads_pay, to_ns
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import ELEMENTS
from autopipe.schedules.primitives import parallelize_loop, replace_sums
from autopipe.schedules.templates.contraction import build_operand_nests
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling import tile_blocks
from autopipe.schedules.tiling.promise import STORE
from autopipe.schedules.tiling.tile_blocks import (
    SUM,
    Block,
    Tiled,
    build_places,
    choose_chain_length,
    choose_fetch_distance,
    choose_step_depth,
    count_blocks,
    needs_row_division,
    pays_for_threads,
    plan_registers,
)
from autopipe.schedules.tiling.tile_kernel import TileKernel
from autopipe.schedules.tiling.tile_pipeline import TilePipeline
from autopipe.schedules.tiling.tile_places import PackedTiles
from autopipe.schedules.tiling.tile_registers import Registers, split_into_strips

_LINES: Final = 8
"""Maximum lines of a block."""
_LINED_AXES: Final = 3
"""Axes of outputs that have lines of pixels."""
_ORDERS: Final[tuple[Literal["columns", "rows"], ...]] = ("columns", "rows")
_MIN_ROW_WORDS: Final = 6
"""Minimum words in a row of a tile, of 16, from which on tiles are faster than vectors."""
_PRODUCTS: Final = 100
"""Products in a cycle by a vector dot-product instruction."""


class TileProductTemplate(Template[Tiled, Block]):
    """Matrix products of int8 or bfloat16 in AMX tiles."""

    name = "tile_product"
    version = schedule_version("tile_product")

    def match(self, sch: Schedule) -> Tiled | None:
        """Match the function, or return None if the template does not apply."""
        match = short_sums.match_short_sum(sch)
        if match is None or match.operands not in TILE_PRODUCTS:
            return None
        block = sch.get(sch.get_sblock(match.name))
        spatial, reductions = axes_of(block)
        has_lines = len(spatial) >= _LINED_AXES
        line = [spatial[-3].var] if has_lines else []
        moving = [*line, spatial[-2].var, *(axis.var for axis in reductions)]
        input_strides = _find_axis_strides(block, 1 - match.weights, moving)
        weight_strides = _find_axis_strides(block, match.weights, moving)
        if input_strides is None or weight_strides is None:
            return None
        if not has_lines:
            input_strides, weight_strides = (
                tuple((0, *moves) for moves in each) for each in (input_strides, weight_strides)
            )
        packed_strides = [
            moves for axis, moves in enumerate(weight_strides) if axis not in match.axes
        ]
        pixel_strides = [moves[1] for moves in input_strides]
        is_transposed = any(moves[-1] for moves in (*input_strides[:-1], *packed_strides))
        if is_transposed or not any(pixel_strides) or any(moves[1] for moves in weight_strides):
            return None
        tiled = Tiled(
            match, match.depth, tuple(int(axis.dom.extent) for axis in reductions[:-1]),
            tuple(moves[:-1] for moves in input_strides),
            tuple(moves[2:-1] for moves in packed_strides),
            lined=has_lines and any(moves[0] for moves in input_strides)
            and not any(moves[0] for moves in weight_strides),
            pitch=_find_line_pitch(block, 1 - match.weights, input_strides),
        )  # fmt: skip
        channels = int(block.reads[1 - match.weights].source.shape[-1])
        return _fuse_reductions(tiled) if channels == match.depth else tiled

    def settings(self, tiled: Tiled, hardware: HardwareParams) -> Iterator[Block]:
        """Yield every block that fits, in both orders, with and without prefetch and chains."""
        for block in _list_blocks(tiled, hardware):
            orders = _ORDERS if min(count_blocks(tiled, block)) > 1 else _ORDERS[:1]
            far = sorted({0, choose_fetch_distance(tiled, block.vectors, hardware)})
            chains = sorted({1, choose_chain_length(tiled, block, hardware)})
            for outer, ahead, chain in product(orders, far, chains):
                yield replace(block, outer=outer, ahead=ahead, chain=chain)

    def fill(self, tiled: Tiled, hardware: HardwareParams) -> Block:
        """Return the block of the minimum estimated time, without measuring.

        Raises ScheduleError if the processor has no AMX, or vectors are faster.
        """
        blocks = list(_list_blocks(tiled, hardware))
        if not blocks:
            raise ScheduleError(f"no tiles for extents {tiled.found.extents}")
        best = min(blocks, key=lambda block: self.estimate(tiled, block, hardware))
        work = math.prod(tiled.found.extents) * math.prod(tiled.reduced) * tiled.depth
        results = math.prod(tiled.found.extents) / COLUMNS * STORE
        vectors = to_ns(work / _PRODUCTS + results, hardware.machine)
        if threads_pay(vectors, hardware.machine):
            vectors /= hardware.cores
        words = choose_step_depth(tiled) // TILE_PRODUCTS[tiled.found.operands].group
        if words < _MIN_ROW_WORDS or self.estimate(tiled, best, hardware) > vectors:
            raise ScheduleError("vectors are faster than tiles that are not full")
        ahead, chain = (
            choose_fetch_distance(tiled, best.vectors, hardware),
            choose_chain_length(tiled, best, hardware),
        )
        best = replace(best, ahead=ahead, chain=chain)
        by_rows = min(count_blocks(tiled, best)) > 1 and needs_row_division(tiled, hardware)
        return replace(best, outer="rows") if by_rows else best

    def estimate(self, tiled: Tiled, block: Block, hardware: HardwareParams) -> float:
        """Estimate the time of a setting, in nanoseconds."""
        return tile_blocks.estimate_ns(tiled, block, hardware)

    def apply(self, sch: Schedule, tiled: Tiled, block: Block) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        match, instruction, step = (
            tiled.found,
            TILE_PRODUCTS[tiled.found.operands],
            choose_step_depth(tiled),
        )
        places = build_places(tiled, block)
        if places.blocks % block.chain:
            raise ScheduleError(f"{block} has no whole chains")
        copies = tuple(name for name in match.before if is_copy(sch.get(sch.get_sblock(name))))
        before = tuple(name for name in match.before if name not in copies)
        parts = replace(match, inlined=copies, before=before)
        operands = build_operand_nests(sch, parts, LINE_BYTES)
        sums = sch.get(sch.get_sblock(match.name))
        last = match.find_last(sch)
        packed_tiles = PackedTiles.of(places, match, sums, instruction.group)
        kernel = TileKernel(
            instruction, plan_registers(tiled, block), step, (*tiled.reduced, tiled.depth // step),
            tiled.given, tiled.weights, block.ahead,
        )  # fmt: skip
        pitch = tiled.pitch if block.flat and tiled.pitch is not None else block.rows
        tiles = TilePipeline(kernel, places, packed_tiles, last, block.chain, pitch, block.threads)
        nests = [*operands, packed_tiles.write(), tiles.write()]
        replace_sums(sch, nests, [sums.writes[0].source], last, [packed_tiles.buffer])
        if not match.free:
            copy = sch.get_sblock(packed_tiles.name)
            parallelize_loop(sch, copy, sch.get_loops(copy)[0], ELEMENTS)


TILE_PRODUCT: Final = TileProductTemplate()


def _fuse_reductions(tiled: Tiled) -> Tiled:
    """Fuse the innermost reduction with the channels, where that fills tiles better.

    Neighbouring taps of a convolution read neighbouring pixels, and neighbouring weights: seven
    taps of 4 channels are 28 contiguous elements in both.
    """
    if not tiled.reduced:
        return tiled
    *across, pixels, channels = (moves[-1] for moves in tiled.given)
    *other_strides, taps = (moves[-1] for moves in tiled.weights)
    if (pixels, taps) != (1, 1) or any(
        (*across, channels, *other_strides, *tiled.weights[-1][:-1])
    ):
        return tiled
    fused = replace(
        tiled, depth=tiled.depth * tiled.reduced[-1], reduced=tiled.reduced[:-1],
        given=tuple(moves[:-1] for moves in tiled.given),
        weights=tuple(moves[:-1] for moves in tiled.weights),
    )  # fmt: skip
    return fused if choose_step_depth(fused) > choose_step_depth(tiled) else tiled


def _list_blocks(tiled: Tiled, hardware: HardwareParams) -> Iterator[Block]:
    """Yield every block whose sums, input and weights fit the tile registers."""
    instruction = TILE_PRODUCTS[tiled.found.operands]
    *outer, pixels, columns = tiled.found.extents
    if tiled.found.depth % instruction.group or not instruction.runs_on(hardware.features):
        return
    for lines in list_divisors(outer[-1], _LINES) if tiled.lined else [1]:
        for rows in list_divisors(pixels, pixels):
            can_be_flat = tiled.pitch is not None and lines > 1 and rows == pixels
            for flat in (False, True) if can_be_flat else (False,):
                strips = split_into_strips(lines, rows, tiled.pitch if flat else None)
                for vectors in _list_vector_counts(columns):
                    if strips is not None and _can_fit_block(
                        Registers(strips, vectors), lines * rows, flat=flat
                    ):
                        block = Block(lines, rows, vectors, flat)
                        yield replace(block, threads=pays_for_threads(tiled, block, hardware))


def _list_vector_counts(columns: int) -> Iterator[int]:
    """Yield the numbers of tiles side by side that cover the columns with no surplus tile.

    Example: 1000 columns are 63 tiles of which the last overlaps another, or 21 times three.
    """
    for vectors in range(1, min(columns // COLUMNS, REGISTERS) + 1):
        if math.ceil(columns / (vectors * COLUMNS)) * vectors == math.ceil(columns / COLUMNS):
            yield vectors


def _can_fit_block(registers: Registers, outputs: int, *, flat: bool) -> bool:
    """Tell whether the tiles fit the registers, and the sums fit the stack."""
    rows = sum(strip.rows for strip in registers.strips) if flat else outputs
    return registers.fit and rows * registers.vectors * COLUMNS * SUM <= MOST


def _find_axis_strides(
    block: SBlock, operand: int, moving: list[tvm.tirx.Var]
) -> tuple[tuple[int, ...], ...] | None:
    """Return the strides of each axis of an operand by variable; None if one is not constant."""
    axes = [find_steps(part.min, moving) for part in block.reads[operand].region]
    if any(moves is None or min(moves) < 0 for moves in axes):
        return None
    return tuple(tuple(moves) for moves in axes if moves is not None)


def _find_line_pitch(
    block: SBlock, operand: int, strides: tuple[tuple[int, ...], ...]
) -> int | None:
    """Return the pixels in a line of the input, if lines and pixels have stride 1; else None."""
    axes = len(strides)
    is_unit = all(
        moves[:2] == (int(axis == axes - 3), int(axis == axes - 2))
        for axis, moves in enumerate(strides)
    )
    return int(block.reads[operand].source.shape[-2]) if is_unit else None
