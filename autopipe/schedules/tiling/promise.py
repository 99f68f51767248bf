"""Estimates the time of a tile from coarse hardware parameters.

Engine `static` takes the tile of the minimum estimate; engine `autotvm` begins its search there.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from autopipe.environment.machines import LINE_BYTES
from autopipe.schedules import cost
from autopipe.schedules.cost import FULL, LOADS, step_cycles
from autopipe.schedules.divisors import floor_power
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import CALLS_NS, CYCLES, PRODUCTS, WEIGHTS
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.tile import Tile, choose_fetch_distance, list_orders, list_tiles

STEP: Final = 0.5
"""Further cycles of a step of the sum (loop, addresses); it favours tiles of many sums."""

_BAND: Final = 4
"""Rows that are enough to read the weights again for each band of them."""

STORE, TILE = 2, 20
"""Cycles to clear and to write one vector of sums, and further cycles of a tile."""

_WAIT: Final = 10
"""Cycles that a tile waits for each line of the result, unless it was fetched."""

_NARROW_ROW_REGISTERS: Final = 8
"""Registers that LLVM wants beside the sums, with one vector a row: it takes two or three steps at
a time, with a vector of weights each, and has some values of the input on their way."""

UNFETCHED: Final = 1.0
"""Further cycles of a step that waits for packed weights."""

_REORDERED: Final = 2
"""Cycles for an element of an operand of a reduction that is copied into the order of tiles."""

_UNROLLED: Final = 4
"""Steps of a sum that are written out on Intel's servers: 0.97 of the time of one after the other,
in the mean of 40 products inside of models, and 0.91 at best."""

_REREAD_FACTOR: Final = 4
"""How many times more weights than input and result each core reads for the sake of rows that it
has written itself, where weights are near and what another core wrote is far."""

_READ_BYTES_PER_CYCLE: Final = 16
"""Bytes that a core reads in a cycle, where each element is read once."""

_UNITS: Final = 2
"""Vector operations that are issued in one cycle."""

_CACHED_PRODUCTS: Final = 256
"""Number of products whose tiles are kept."""

_SPILLED_SUM_CYCLES: Final = 1.1
"""Cycles of a step for each sum that goes to memory and back, as LLVM finds no register for it."""


@lru_cache(maxsize=_CACHED_PRODUCTS)
def choose_tile(contraction: Contraction, hardware: HardwareParams) -> Tile:
    """Return the tile of the minimum estimated time on a processor, without measuring.

    Threads share it where a second one pays for the shortest time that one can take. Tiles are
    kept: a kernel of dynamic shapes asks for that of its specialized size.
    """
    shares = cost.threads_pay(_find_shortest_ns(contraction, hardware), hardware.machine)
    serial = _find_serial_threshold(contraction, hardware)
    tile = min(
        list_settings(contraction, hardware)
        if shares
        else (replace(tile, shared_from=serial) for tile in list_tiles(contraction, hardware)),
        key=lambda tile: estimate_cycles(contraction, tile, hardware),
    )
    if hardware.machine.has_mesh and not contraction.terms[-1] % _UNROLLED:
        tile = replace(tile, unroll=_UNROLLED)
    return replace(tile, outer="rows") if needs_outer_rows(contraction, tile, hardware) else tile


def list_settings(contraction: Contraction, hardware: HardwareParams) -> Iterator[Tile]:
    """Yield every tile, and once more where the processor may decide otherwise on threads.

    Example: 8 rows of 256 by [256, 256] take one core of a Zen 4 9.2 us, and two 6.1 us.
    """
    serial = _find_serial_threshold(contraction, hardware)
    shortest = _find_shortest_ns(contraction, hardware)
    might_pay = hardware.cores > 1 and shortest >= cost.start_ns(hardware.machine)
    is_shared = contraction.products >= find_threshold(contraction)
    for tile in list_tiles(contraction, hardware):
        yield tile
        if might_pay and not is_shared and count_jobs(contraction, tile) > 1:
            yield replace(tile, shared_from=floor_power(contraction.products))
        if serial is not None:
            yield replace(tile, shared_from=serial)


def _find_serial_threshold(contraction: Contraction, hardware: HardwareParams) -> int | None:
    """Return the knob that keeps a product on one thread; None where a second one pays."""
    shortest = _find_shortest_ns(contraction, hardware)
    if cost.threads_pay(shortest, hardware.machine):
        return None
    default = find_threshold(contraction)
    return cost.choose_threshold(contraction.products, default, shortest, hardware)


def _find_shortest_ns(contraction: Contraction, hardware: HardwareParams) -> float:
    """Return the shortest time that a sum of products may take one thread, in nanoseconds."""
    weights = contraction.column_elements * contraction.bits // 8
    one_core = replace(hardware, cores=1)
    return cost.lower_bound_ns(2 * contraction.products, weights, contraction.bits, one_core)


def choose_reduction_tile(
    contraction: Contraction, hardware: HardwareParams, tiles: Iterable[Tile]
) -> Tile:
    """Return the tile of the minimum estimated time for reductions other than products.

    All strips of a band come first where each tile reads elements of its own, as windows do: the
    mean of 3 x 3 pixels of [3, 225, 225] takes 42 us so, and 98 us strip by strip.
    """
    lines = contraction.lines

    def cycles(tile: Tile) -> float:
        copy_cycles = _REORDERED * contraction.column_elements * tile.packed
        return estimate_cycles(contraction, tile, hardware) + copy_cycles

    tile = min((tile for tile in tiles if tile.shared_from is None), key=cycles)
    owns_rows = lines.alone and bool(lines.rows) and {*lines.rows} <= {*lines.batch}
    has_rows = "rows" in list_orders(contraction, tile.rows, tile.columns)
    return replace(tile, outer="rows") if owns_rows and has_rows else tile


def estimate_reduction_ns(contraction: Contraction, tile: Tile, hardware: HardwareParams) -> float:
    """Estimate the time of a reduction other than a product on one core."""
    one_core = replace(hardware, cores=1)
    cycles_ns = cost.to_ns(estimate_cycles(contraction, tile, one_core), hardware.machine)
    read_bytes = contraction.column_elements * contraction.bits / 8
    return max(cycles_ns, cost.copy_ns(read_bytes, hardware)) + contraction.calls_ns


def needs_outer_rows(contraction: Contraction, tile: Tile, hardware: HardwareParams) -> bool:
    """Tell whether all strips of one band of rows should come before the next band."""
    has_rows = "rows" in list_orders(contraction, tile.rows, tile.columns)
    streams = _can_stream_inputs(contraction, hardware)
    return has_rows and (streams or _shares_lines(contraction, tile, hardware))


def _is_result_far(contraction: Contraction, hardware: HardwareParams) -> bool:
    """Tell whether a first-level cache has no room for the result, so that it goes far away."""
    return math.prod(contraction.extents) * contraction.bits // 8 > hardware.l1


def _can_stream_inputs(contraction: Contraction, hardware: HardwareParams) -> bool:
    """Tell whether a second-level cache holds the weights of a product, but not the rest.

    A product is one of matrices, or a convolution of one tap: its sum has one axis longer than 1.
    Other convolutions count where a first-level cache holds the weights, such as 3x3 of an image of
    3 channels.

    Then all strips of one band come first: input and result pass by once, in the order in which
    they lie in memory. Otherwise they would come from far away, and go there, for each strip.

    So they do where several cores share a product with fewer weights than input and result. Bands
    give each core rows of its own, which the kernel before has left with the same core, as most
    divide rows. Strips have every core read all of the input, half of it from another core's cache.
    On a mesh that takes so long that four times as many weights may be read for it, as long as they
    stay near from run to run. Example: 64 rows of 256 by weights of [256, 128], in a transformer of
    1 MiB, 14 us in place of 19.7.
    """
    depth, size = math.prod(contraction.terms), contraction.bits // 8
    weights = contraction.breadth * depth * size
    passing = contraction.height * (depth + contraction.breadth) * size
    other_outputs = math.prod(contraction.extents[axis] for axis in contraction.others)
    is_plain_product = other_outputs == 1 and sum(term > 1 for term in contraction.terms) <= 1
    weights_fit = weights <= hardware.l2 and passing > hardware.l2 * FULL
    near = weights <= hardware.l1 and _is_result_far(contraction, hardware)
    far = hardware.machine.has_mesh and hardware.keeps_weights
    most = min(passing * (_REREAD_FACTOR if far else 1), hardware.l2 * FULL)
    is_divided = hardware.cores > 1 and weights <= most
    return contraction.lines.free and (near or (is_plain_product and (weights_fit or is_divided)))


def _shares_lines(contraction: Contraction, tile: Tile, hardware: HardwareParams) -> bool:
    """Tell whether strips meet inside of lines of the result, and should follow each other.

    Such a line is written by two strips: the one after the other if all strips of one band come
    first. That pays where a first-level cache has no room for the result and a second-level cache
    holds the weights. Few rows are no band: they would read all weights again too often. Groups
    read a part of each line of the input, too.

    Example: 28 x 28 pixels of 104 channels, of as many, tiles of 6 x 16: 238 us in place of 279.
    """
    lines = contraction.lines
    line = 8 * LINE_BYTES
    parts_lines = (
        tile.columns * contraction.bits % line or contraction.breadth * contraction.bits % line
    )
    weight_bytes = contraction.breadth * math.prod(contraction.terms) * contraction.bits // 8
    has_groups = lines.granule < contraction.breadth
    is_plain_product = has_groups or sum(term > 1 for term in contraction.terms) <= 1
    near = weight_bytes <= hardware.l2 * FULL and tile.rows >= _BAND
    return (
        bool(parts_lines)
        and lines.free
        and is_plain_product
        and near
        and _is_result_far(contraction, hardware)
    )


def estimate_cycles(contraction: Contraction, tile: Tile, hardware: HardwareParams) -> float:
    """Return the estimated cycles until the last core is done.

    A step of the sum takes as long as its multiply-adds, its loads or the latency of one
    multiply-add, whichever is longest. Narrow vectors and overlapping tiles cost more steps, and so
    do cores that get one tile more than others.

    Example: a tile of 6 x 32 with vectors of 16 has 12 vectors of sums. A step takes
    max(12 / 2 multiply-adds, (6 + 2) / 2 loads, 4 latency) + 0.5 = 6.5 cycles.
    """
    vectors = tile.columns // tile.width
    sums = tile.rows * vectors
    machine = hardware.machine
    step = STEP + step_cycles(machine, sums, tile.rows + vectors, machine.fma_latency_cycles)
    if vectors == 1:
        step += max(0, sums + _NARROW_ROW_REGISTERS - hardware.registers) * _SPILLED_SUM_CYCLES
    if not tile.ahead and choose_fetch_distance(
        contraction, tile.columns, hardware, packed=tile.packed
    ):
        step += UNFETCHED
    tile_cycles = math.prod(contraction.terms) * step + sums * STORE + TILE
    lines = tile.rows * -(-tile.columns * contraction.bits // (8 * LINE_BYTES))
    waits = lines * _WAIT if _is_result_far(contraction, hardware) and not tile.fetched else 0
    tile_cycles += waits + (lines / LOADS if tile.fetched else 0)
    cores = hardware.cores if shares_tiles(contraction, tile) else 1
    return -(-count_jobs(contraction, tile) // cores) * tile_cycles


def count_jobs(contraction: Contraction, tile: Tile) -> int:
    """Count the tiles that cover the outputs."""
    cuts = -(-contraction.lines.granule // tile.columns)
    strips = contraction.breadth // contraction.lines.granule * cuts
    bands = -(-contraction.height // tile.rows)
    return strips * bands * math.prod(contraction.extents[axis] for axis in contraction.others)


def shares_tiles(contraction: Contraction, tile: Tile) -> bool:
    """Tell whether threads share the tiles of a function of known sizes."""
    knob = tile.shared_from
    return contraction.products >= (find_threshold(contraction) if knob is None else knob)


def find_threshold(contraction: Contraction, tile: Tile | None = None) -> int:
    """Return the steps of all sums from which threads share a contraction, by its knob.

    Without the knob it is 0 where reading the weights from memory alone takes long enough, or
    elementary functions do. Of reductions other than products, it depends on the tile.
    """
    if tile is not None and tile.shared_from is not None:
        return tile.shared_from
    weights = contraction.column_elements if contraction.lines.free else 0
    if weights * contraction.bits >= WEIGHTS * 32:
        return 0
    if tile is None or contraction.sums_products:
        return PRODUCTS
    if contraction.calls_ns >= CALLS_NS:
        return 0
    read_once = tile.rows == 1 and not contraction.lines.rows
    if read_once:
        return CYCLES * (_READ_BYTES_PER_CYCLE * 8 // max(8, contraction.bits))
    return CYCLES * _UNITS * tile.width
