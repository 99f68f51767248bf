"""Blocks of outputs that are summed in AMX tiles, and estimates of their time.

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
_TILE_LOAD_CYCLES: Final = 20
"""Cycles that a tile of the input takes to load, and one of the weights."""
_LATENCY: Final = 52
"""Cycles until a product is added, for which the next one to the same sums waits."""
_BLOCK: Final = 60
"""Cycles that a block takes besides its products: sums are cleared, and come late to memory."""
_RESULT: Final = 7
"""Cycles of a vector of results, which come through memory from AMX tiles."""
_HIDDEN: Final = 0.05
"""Part by which a turn is longer for the shorter one of products and results, beside the other."""
_TILE_FETCH_DISTANCE: Final = 4 << 10
"""Bytes of weights between what is read and what is fetched; the fastest of 2, 4, 8 and 16 KiB."""
_SMALL_WEIGHTS_PART: Final = 0.25
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
    """A matmul of int8 or bfloat16 in AMX tiles, as the knobs depend on it."""

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


def estimate_ns(product: Tiled, block: Block, hardware: HardwareParams) -> float:
    """Return the estimated nanoseconds of a setting."""
    cores = hardware.cores if block.threads else 1
    return to_ns(estimate_cycles(product, block, cores), hardware.machine)


def pays_for_threads(product: Tiled, block: Block, hardware: HardwareParams) -> bool:
    """Tell whether a second thread pays for all blocks."""
    machine = hardware.machine
    return threads_pay(to_ns(estimate_cycles(product, block, 1), machine), machine)


def estimate_cycles(product: Tiled, block: Block, cores: int) -> float:
    """Estimate the cycles of all blocks on a number of cores.

    An AMX matmul takes a cycle for each row of weights or of the input, whichever are more. Loads
    of tiles overlap it: the input from the first-level cache, weights from the second. So do the
    results of the block before.
    """
    strips = plan_registers(product, block).strips
    step = choose_step_depth(product)
    group = TILE_PRODUCTS[product.found.operands].group
    highest = max(strip.rows for strip in strips)
    products = len(strips) * block.vectors * max(highest, step // group)
    loads = len(strips) * _FROM_L1 + block.vectors * _TILE_LOAD_CYCLES
    steps = math.prod(product.reduced) * product.depth // step
    outputs, blocks = block.lines * block.rows, math.prod(count_blocks(product, block))
    sum_cycles = steps * (max(products, loads, _LATENCY) + loads / 50)
    result_cycles = _RESULT * outputs * block.vectors
    block_cycles = (
        max(sum_cycles, result_cycles) + _HIDDEN * min(sum_cycles, result_cycles) + _BLOCK
    )
    return block_cycles * math.ceil(blocks / cores)


def count_blocks(product: Tiled, block: Block) -> tuple[int, int]:
    """Return (blocks along the rows, blocks along the columns)."""
    places = build_places(product, block)
    return places.blocks // places.strips, places.strips


def build_places(product: Tiled, block: Block) -> TilePlaces:
    """Return the places of the blocks."""
    columns = block.vectors * COLUMNS
    return TilePlaces(product.found.extents, block.lines, block.rows, columns, block.outer)


def choose_chain_length(product: Tiled, block: Block, hardware: HardwareParams) -> int:
    """Choose the number of blocks that a core computes one behind another.

    A chain takes a turn more than it has blocks, and all cores should take equally many turns.

    Example: 49 blocks on two cores are seven chains of 7, and one of them has four: 4 * 8 turns.
    """
    blocks = build_places(product, block).blocks
    cores = hardware.cores if block.threads else 1
    most = list_divisors(blocks, blocks)
    return min(most, key=lambda chain: math.ceil(blocks // chain / cores) * (chain + 1))


def needs_row_division(product: Tiled, hardware: HardwareParams) -> bool:
    """Tell whether cores should share rows, as `tiling/promise.py` decides for other products.

    Example: of 56 x 56 pixels of 64 channels, strips of 16 write quarters of the same 64 bytes, a
    line of the caches that two cores would take from each other.
    """
    return _count_weight_bytes(product) <= min(_count_activation_bytes(product), hardware.l2 * FULL)


def choose_fetch_distance(product: Tiled, vectors: int, hardware: HardwareParams) -> int:
    """Choose the prefetch distance of weights in steps of the sum; 0 where it gains nothing.

    In a model weights come from memory, and a step of few rows is done before a tile arrives. Few
    weights are read again for many rows, and are in a cache from the second time on; those of a
    small model are there from the run before.

    Example: two int8 tiles have 2 KiB a step, so those of step 10 are fetched in step 8.
    """
    near = hardware.keeps_weights or _count_weight_bytes(product) <= max(
        hardware.l1, _count_activation_bytes(product) * _SMALL_WEIGHTS_PART
    )
    if near or not product.found.free or not hardware.wants_prefetch:
        return 0
    return max(
        1,
        _TILE_FETCH_DISTANCE
        // (vectors * COLUMNS * choose_step_depth(product) * _compute_weight_size(product)),
    )


def _count_activation_bytes(product: Tiled) -> int:
    """Count the bytes of inputs and outputs, with as many for an element as a weight has."""
    *outer, pixels, columns = product.found.extents
    return (
        math.prod(outer) * pixels * (product.found.depth + columns) * _compute_weight_size(product)
    )


def _count_weight_bytes(product: Tiled) -> int:
    """Return the bytes of all weights."""
    return (
        product.found.extents[-1]
        * math.prod(product.reduced)
        * product.depth
        * _compute_weight_size(product)
    )


def _compute_weight_size(product: Tiled) -> int:
    """Return the bytes of a weight."""
    return SUM // TILE_PRODUCTS[product.found.operands].group


def plan_registers(product: Tiled, block: Block) -> Registers:
    """Return the use of registers for a block. Raises ScheduleError where a line has no parts."""
    strips = split_into_strips(block.lines, block.rows, product.pitch if block.flat else None)
    if strips is None:
        raise ScheduleError(f"no tiles for {block}")
    return Registers(strips, block.vectors)


def choose_step_depth(product: Tiled) -> int:
    """Choose the largest number of products of an instruction that divides the innermost sum."""
    group = TILE_PRODUCTS[product.found.operands].group
    return list_divisors(product.depth // group, WORDS)[-1] * group
