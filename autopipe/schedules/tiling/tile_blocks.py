"""Blocks of outputs that are summed in registers of tiles, and what they are expected to take.

Engine `static` takes the block of the minimum estimate; engine `autotvm` begins its search there.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

from tvm.s_tir import ScheduleError

from autopipe.schedules.analysis.short_sums import ShortSum
from autopipe.schedules.analysis.tile_products import COLUMNS, TILE_PRODUCTS, WORDS
from autopipe.schedules.cost import FULL, threads_pay, to_ns
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.tiling.tile_places import TilePlaces
from autopipe.schedules.tiling.tile_registers import Registers, split_into_strips

SUM: Final = 4
"""Bytes of a sum."""
_FROM_L1: Final = 8
_FROM_L2: Final = 20
"""Cycles that a tile of the input takes to load, and one of the weights."""
_LATENCY: Final = 52
"""Cycles until a product is added, for which the next one to the same sums waits."""
_BLOCK: Final = 60
"""Cycles that a block takes besides its products: sums are cleared, and come late to memory."""
_RESULT: Final = 7
"""Cycles of a vector of results, which come through memory from registers of tiles."""
_HIDDEN: Final = 0.05
"""Part by which a turn is longer for the shorter one of products and results, beside the other."""
_AHEAD: Final = 4 << 10
"""Bytes of weights between what is read and what is fetched; the fastest of 2, 4, 8 and 16 KiB."""
_FEW: Final = 0.25
"""Part of what is read and written beside them up to which weights are few."""


@dataclass(frozen=True, slots=True)
class Block:
    """The knobs of a block; records of schedules hold their names and values."""

    lines: int
    """Outputs along the third axis from the end; divides its extent."""
    rows: int
    """Outputs along the last but one axis; divides its extent."""
    vectors: int
    """Tiles of outputs along the last axis."""
    flat: bool = False
    """Whether tiles run over the ends of lines."""
    outer: Literal["rows", "columns"] = "columns"
    """The outer loop over the blocks. "columns": all rows of one strip, so that weights are read
    once; "rows": all strips of one band, so that a core writes pixels of its own, whole lines of
    the caches, and reads what it wrote in the kernel before."""
    ahead: int = 0
    """How many steps of the sum before they are read weights are fetched; 0: never."""
    chain: int = 1
    """Blocks that a core computes one behind another, results of each beside products of the next;
    divides the number of blocks."""
    threads: bool = True
    """Whether threads share the blocks."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """What the knobs depend on in a function that sums short products."""

    found: ShortSum
    depth: int
    """Extent of the innermost reduction, with those that are joined to it."""
    reduced: tuple[int, ...]
    """Extents of all other reductions."""
    given: tuple[tuple[int, ...], ...]
    """For each axis of the input: elements for a line, for a pixel, for one of each reduction."""
    weights: tuple[tuple[int, ...], ...]
    """For each axis of the weights but the packed ones: elements for one of each reduction."""
    lined: bool
    """Whether the third axis of outputs from the end moves along the input."""
    pitch: int | None
    """Pixels of the input in a line, where the next line follows as the next pixel does."""


def estimate_ns(tiled: Tiled, block: Block, hardware: HardwareParams) -> float:
    """Return the estimated nanoseconds of a setting."""
    cores = hardware.cores if block.threads else 1
    return to_ns(estimate_cycles(tiled, block, cores), hardware.machine)


def pays_for_threads(tiled: Tiled, block: Block, hardware: HardwareParams) -> bool:
    """Tell whether a second thread pays for all blocks."""
    machine = hardware.machine
    return threads_pay(to_ns(estimate_cycles(tiled, block, 1), machine), machine)


def estimate_cycles(tiled: Tiled, block: Block, cores: int) -> float:
    """Return the estimated cycles on so many cores.

    A product of tiles takes a cycle for each row of weights, and no fewer than for each of the
    input. Tiles are loaded meanwhile: the input from the first cache, weights from the second. The
    results of the block before are computed meanwhile, too.
    """
    strips = plan_registers(tiled, block).strips
    step = choose_step_depth(tiled)
    group = TILE_PRODUCTS[tiled.found.operands].group
    highest = max(strip.rows for strip in strips)
    products = len(strips) * block.vectors * max(highest, step // group)
    loads = len(strips) * _FROM_L1 + block.vectors * _FROM_L2
    steps = math.prod(tiled.reduced) * tiled.depth // step
    outputs, blocks = block.lines * block.rows, math.prod(count_blocks(tiled, block))
    sum_cycles = steps * (max(products, loads, _LATENCY) + loads / 50)
    result_cycles = _RESULT * outputs * block.vectors
    block_cycles = (
        max(sum_cycles, result_cycles) + _HIDDEN * min(sum_cycles, result_cycles) + _BLOCK
    )
    return block_cycles * math.ceil(blocks / cores)


def count_blocks(tiled: Tiled, block: Block) -> tuple[int, int]:
    """Return how many blocks there are one below the other, and beside each other."""
    places = build_places(tiled, block)
    return places.blocks // places.strips, places.strips


def build_places(tiled: Tiled, block: Block) -> TilePlaces:
    """Return where blocks are."""
    columns = block.vectors * COLUMNS
    return TilePlaces(tiled.found.extents, block.lines, block.rows, columns, block.outer)


def choose_chain_length(tiled: Tiled, block: Block, hardware: HardwareParams) -> int:
    """Return how many blocks a core should compute one behind another.

    A chain takes a turn more than it has blocks, and cores should have as many turns.

    Example: 49 blocks on two cores are seven chains of 7, and one of them has four: 4 * 8 turns.
    """
    blocks = build_places(tiled, block).blocks
    cores = hardware.cores if block.threads else 1
    most = list_divisors(blocks, blocks)
    return min(most, key=lambda chain: math.ceil(blocks // chain / cores) * (chain + 1))


def needs_row_division(tiled: Tiled, hardware: HardwareParams) -> bool:
    """Tell whether cores should share rows, as `tiling/promise.py` tells of other products.

    Example: of 56 x 56 pixels of 64 channels, strips of 16 write quarters of the same 64 bytes, a
    line of the caches that two cores would take from each other.
    """
    return _count_weight_bytes(tiled) <= min(_count_activation_bytes(tiled), hardware.l2 * FULL)


def choose_fetch_distance(tiled: Tiled, vectors: int, hardware: HardwareParams) -> int:
    """Return how many steps before they are read weights are fetched; 0 where nothing is gained.

    In a model they come from far away, and a step of few rows is done before a tile has come. Few
    weights are read again and again for many rows, and are near from the second time on; those of a
    small model are near from the run before.

    Example: two tiles of bytes have 2 KiB a step, so those of step 10 are fetched in step 8.
    """
    near = hardware.keeps_weights or _count_weight_bytes(tiled) <= max(
        hardware.l1, _count_activation_bytes(tiled) * _FEW
    )
    if near or not tiled.found.free or not hardware.wants_prefetch:
        return 0
    return max(
        1, _AHEAD // (vectors * COLUMNS * choose_step_depth(tiled) * _compute_weight_size(tiled))
    )


def _count_activation_bytes(tiled: Tiled) -> int:
    """Return the bytes that are read and written beside weights, as many as these for a number."""
    *outer, pixels, columns = tiled.found.extents
    return math.prod(outer) * pixels * (tiled.found.depth + columns) * _compute_weight_size(tiled)


def _count_weight_bytes(tiled: Tiled) -> int:
    """Return the bytes of all weights."""
    return (
        tiled.found.extents[-1]
        * math.prod(tiled.reduced)
        * tiled.depth
        * _compute_weight_size(tiled)
    )


def _compute_weight_size(tiled: Tiled) -> int:
    """Return the bytes of a weight."""
    return SUM // TILE_PRODUCTS[tiled.found.operands].group


def plan_registers(tiled: Tiled, block: Block) -> Registers:
    """Return the use of registers for a block. Raises ScheduleError where a line has no parts."""
    strips = split_into_strips(block.lines, block.rows, tiled.pitch if block.flat else None)
    if strips is None:
        raise ScheduleError(f"no tiles for {block}")
    return Registers(strips, block.vectors)


def choose_step_depth(tiled: Tiled) -> int:
    """Return the most products that an instruction can add so that all steps are alike."""
    group = TILE_PRODUCTS[tiled.found.operands].group
    return list_divisors(tiled.depth // group, WORDS)[-1] * group
