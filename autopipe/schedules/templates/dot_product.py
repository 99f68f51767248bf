"""Template for int8 and bfloat16 matmuls and convolutions, by dot-product instructions.

As in `contraction`, whose loops these are, a tile of outputs is summed in registers, and the
epilogue is computed on the tile before it leaves them. A dot-product instruction computes a vector
of sums along the columns and `group` steps of the innermost reduction at once; the weights are
packed in its order.

Example: `vpdpbusd` with 512 bits has 16 lanes and groups of 4. A product of [28, 64] (uint8) and
[64, 32] (int8) in tiles of 14 rows and 2 vectors:

    packed = w as [1, 16, 32 * 4]                    # packed[0, k // 4, 4 * j + k % 4] = w[k, j]
    for tile in range(2):                            # rows 0..13, then rows 14..27
        sums = zeros(14, 32)                         # 28 registers of 16 int32
        for step in range(16):                       # 4 of the 64 terms at a time
            for row, vector in unrolled(14, 2):
                sums[row, vector] = vpdpbusd(sums[row, vector], x[row, 4 * step : 4 * step + 4],
                                             packed[0, step, 64 * vector : 64 * vector + 64])
        y[14 * tile : 14 * tile + 14, :] = sums

`vdpbf16ps` has groups of 2, operands of bfloat16 and sums of float32; the rest is the same.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tvm.s_tir import Schedule, ScheduleError

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis import short_sums
from autopipe.schedules.analysis.dot_products import find_instruction, list_dot_products
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.short_sums import ShortSum
from autopipe.schedules.cost import choose_threshold, step_cycles, to_ns
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import inline_blocks
from autopipe.schedules.templates.contraction import tile_contraction
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling.form import Contraction, match_contraction
from autopipe.schedules.tiling.promise import (
    STEP,
    STORE,
    TILE,
    UNFETCHED,
    count_jobs,
    find_threshold,
    needs_outer_rows,
    shares_tiles,
)
from autopipe.schedules.tiling.tile import Tile, choose_fetch_distance, list_orders, list_sizes

_BYTE: Final = 8
"""Bits of an int8 operand, and mostly of a result."""
_OPERANDS: Final = 2
_EPILOGUE: Final = 40
"""Cycles to round a vector of sums back to int8, with a division: on a Zen 4 33 and 48 in two
convolutions of pipeline `detector`, by their time on one thread less the estimate of the sums."""


@dataclass(frozen=True, slots=True)
class DotProductTile(Tile):
    """The knobs of a tile: those of template `contraction`, and the instruction.

    A single vector of columns may be wider than there are columns: the surplus sums are not
    written.
    """

    instruction: str = ""
    """Mnemonic of the dot-product instruction."""


@dataclass(frozen=True, slots=True)
class DotProducts:
    """A sum of int8 or bfloat16 products."""

    short: ShortSum
    sums: Contraction
    """The same as a sum of products of any dtype."""


class DotProductTemplate(Template[DotProducts, DotProductTile]):
    """Products of int8 or bfloat16 by instructions that add several at once."""

    name = "dot_product"
    version = schedule_version("dot_product")

    def match(self, sch: Schedule) -> DotProducts | None:
        """Match the function, or return None if the template does not apply."""
        short = short_sums.match_short_sum(sch)
        match = match_contraction(sch) if short is not None else None
        if short is None or match is None:
            return None
        return DotProducts(short, match) if _is_in_order(sch, match, short) else None

    def settings(self, match: DotProducts, hardware: HardwareParams) -> Iterator[DotProductTile]:
        """Yield every tile that fits the registers, for every instruction of the processor.

        A tile comes once more where the processor decides otherwise on threads than the default.
        """
        tiles = list(self._list_tiles(match, hardware))
        threshold = self._choose_threshold(match, tiles, hardware)
        for tile in tiles:
            yield tile
            if threshold is not None:
                yield replace(tile, shared_from=threshold)

    def _list_tiles(self, match: DotProducts, hardware: HardwareParams) -> Iterator[DotProductTile]:
        """Yield every tile that fits the registers, without a decision on threads."""
        sums, granule = match.sums, match.sums.lines.granule
        for dot in list_dot_products(match.short.operands):
            if match.short.depth % dot.group or granule * 2 <= dot.lanes:
                continue
            if not dot.runs_on(hardware.features):
                continue
            for rows, columns in list_sizes(sums, hardware, dot.lanes, padded=True):
                # The terms that a step adds to a sum have as many bits as the sum.
                most = choose_fetch_distance(sums, columns, hardware, packed=True)
                for outer in list_orders(sums, rows, columns):
                    for ahead in sorted({0, most}):
                        yield DotProductTile(
                            rows, columns, dot.lanes, packed=True, outer=outer, unroll=1,
                            ahead=ahead, instruction=dot.name,
                        )  # fmt: skip

    def fill(self, match: DotProducts, hardware: HardwareParams) -> DotProductTile:
        """Return the tile of the minimum estimated time, without measuring.

        Threads share it where a second one pays. Raises ScheduleError if the processor has no
        instruction for these extents.
        """
        tiles = [tile for tile in self._list_tiles(match, hardware) if tile.outer == "columns"]
        if not tiles:
            raise ScheduleError(f"no dot-product instruction for extents {match.short.extents}")
        threshold = self._choose_threshold(match, tiles, hardware)
        tiles = [replace(tile, shared_from=threshold) for tile in tiles]
        tile = min(tiles, key=lambda tile: self.estimate(match, tile, hardware))
        narrow = replace(match.sums, bits=_BYTE)
        by_rows = needs_outer_rows(narrow, tile, hardware)
        return replace(tile, outer="rows") if by_rows else tile

    def estimate(self, match: DotProducts, tile: DotProductTile, hardware: HardwareParams) -> float:
        """Estimate the cycles until the last core is done.

        A step of the sum takes as long as its instructions, its loads or the latency of one
        instruction, whichever is longest.

        Example: a tile of 6 x 2 vectors of int8 has 12 vectors of sums. A step takes
        max(12 / 2 instructions, (6 + 2) / 2 loads, 4 latency) + 0.5 = 6.5 cycles.
        """
        dot = find_instruction(tile.instruction, tile.width, match.short.operands)
        sums, columns = match.sums, tile.columns // tile.width
        vectors, loads = tile.rows * columns, tile.rows + columns
        latency = hardware.machine.fma_latency_cycles
        late = (
            tile.ahead == 0 and choose_fetch_distance(sums, tile.columns, hardware, packed=True) > 0
        )
        step = STEP + step_cycles(hardware.machine, vectors * dot.cost, loads, latency)
        step += late * UNFETCHED
        steps = math.prod(sums.terms) // dot.group
        cores = hardware.cores if shares_tiles(sums, tile) else 1
        return -(-count_jobs(sums, tile) // cores) * (steps * step + vectors * STORE + TILE)

    def _choose_threshold(
        self, match: DotProducts, tiles: Sequence[DotProductTile], hardware: HardwareParams
    ) -> int | None:
        """Choose the knob `shared_from`, by the time of the fastest tile on one core."""
        sums, one_core = match.sums, replace(hardware, cores=1)
        if not tiles:
            return None
        tile = min(tiles, key=lambda tile: self.estimate(match, tile, one_core))
        cycles = self.estimate(match, tile, one_core)
        if sums.after:
            cycles += _EPILOGUE * math.prod(sums.extents) / tile.width
        nanoseconds, default = to_ns(cycles, hardware.machine), find_threshold(sums)
        return choose_threshold(sums.products, default, nanoseconds, hardware)

    def apply(self, sch: Schedule, match: DotProducts, tile: DotProductTile) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        dot = find_instruction(tile.instruction, tile.width, match.short.operands)
        sums = match.sums
        if dot.row != match.short.operands[0]:
            copy = _widen_input(sch, match, dot.row)
            sums = replace(sums, before=(*sums.before, copy))
        tile_contraction(sch, sums, tile, dot=dot)


DOT_PRODUCT: Final = DotProductTemplate()


def _is_in_order(sch: Schedule, match: Contraction, short: ShortSum) -> bool:
    """Tell whether one operand is packed along the columns, and the other contiguous in the terms.

    Copies that will be inlined, such as a transpose, are looked through.
    """
    trial = sch.copy()
    inline_blocks(trial, match.inlined)
    product = Product.of(trial.get(trial.get_sblock(match.name)))
    lines = match.lines
    if product is None or len(product.loads) != _OPERANDS or True not in lines.packed:
        return False
    row = product.loads[1 - lines.operand]
    dtypes = tuple(str(product.loads[at].source.dtype) for at in (1 - lines.operand, lines.operand))
    _, summed_axes = product.copied(product.loads[lines.operand])
    is_packed = lines.alone and dtypes == short.operands and len(product.sums) - 1 in summed_axes
    return is_packed and bool(row.indices[-1].same_as(product.sums[-1]))


def _widen_input(sch: Schedule, match: DotProducts, dtype: str) -> str:
    """Cast the whole input to another dtype before the sums; return the block's name."""
    block = sch.get_sblock(match.short.name)
    copy = sch.cache_read(block, 1 - match.short.weights, "global")
    sch.unsafe_set_dtype(copy, 0, dtype)
    return str(sch.get(copy).name_hint)
