"""The knobs of a tile of windows, every tile that fits the registers, and estimates of its time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autopipe.environment.machines import LINE_BYTES
from autopipe.schedules import cost
from autopipe.schedules.analysis.windows import Windows
from autopipe.schedules.divisors import floor_power, list_divisors
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import CALLS_NS, WINDOW_PRODUCTS
from autopipe.schedules.tiling.tile import list_tile_sizes
from autopipe.schedules.tiling.windows import PAIR

MAX_VECTORS = 4
"""Maximum vectors in a row of a tile."""

AHEAD = 256
"""Operations in the out-of-order window: sums of short windows overlap with the next ones."""

STACK = 1024
"""Bytes from which on TVM takes a buffer from the runtime's allocator, not from the stack."""

MANY = 3
"""Weights in a row above which keeping the input row in registers, too, leaves few for sums. Tiles
of at least half a row then read their input from the stack, which is faster; shorter tiles lose.
With twice as many weights one sum is left, and all tiles read the stack: 7x7 at 56 x 56 x 48 has
7 sums in place of one, and takes 288 us in place of 928."""


@dataclass(frozen=True, slots=True)
class WindowTile:
    """The knobs."""

    rows: int
    """Outputs along the last but one axis; divides its extent, or the last tile overlaps others."""
    columns: int
    """Outputs along the last axis; divides its extent, or the last tile overlaps others."""
    width: int
    """Elements in a vector, a power of two; divides `columns`."""
    shared: int
    """Number of loops over tiles, from the outermost on, that are fused and run in parallel."""
    shared_from: int | None = None
    """Steps of all windows from which threads share the tiles; None: as in `parallel_work.py`."""


def list_strips(windows: Windows, lanes: int, *, overlap: bool) -> Iterator[tuple[int, int]]:
    """Yield (columns, vector width) of tiles, in elements.

    Example: 84 columns and 8 lanes give 1 to 28 in vectors of up to 4, and, if they may overlap, 8,
    16, 24 and 32 in vectors of 8: 11, 6, 4 and 3 strips.
    """
    breadth = windows.extents[-1]
    for columns in list_divisors(breadth, MAX_VECTORS * lanes):
        yield columns, math.gcd(columns, lanes)
    width = min(lanes, floor_power(breadth))
    if overlap and breadth % width and windows.may_overlap:
        for columns in list_tile_sizes(breadth, width, min(MAX_VECTORS, breadth // width)):
            yield columns, width


def list_tile_rows(windows: Windows, most: int, *, overlap: bool) -> list[int]:
    """List the numbers of rows that a tile may have.

    Example: 41 rows have no divisor but 1; seven tiles of 6 that overlap cover them.
    """
    extent = find_row_extent(windows)
    rows = list_divisors(extent, most)
    if overlap and windows.may_overlap:
        rows = sorted({*rows, *list_tile_sizes(extent, 1, min(extent, most))})
    return rows


def estimate_efficiency(tile: WindowTile, windows: Windows, hardware: HardwareParams) -> float:
    """Estimate the share of the peak speed that a tile reaches on all cores, from 0 to 1.

    The factors: that on one core, and busy cores; 0.8 for each parallel loop favours few of them.
    """
    inner = [-(-windows.extents[-1] // tile.columns), -(-find_row_extent(windows) // tile.rows)]
    jobs = math.prod([*windows.extents[:-PAIR], *inner][: tile.shared])
    busy = jobs / (-(-jobs // hardware.cores) * hardware.cores)
    return _estimate_core_efficiency(tile, windows, hardware) * busy * 0.8**tile.shared


def _estimate_core_efficiency(
    tile: WindowTile, windows: Windows, hardware: HardwareParams
) -> float:
    """Estimate the share of the peak speed that a tile reaches on one core, from 0 to 1.

    The factors: utilized vector lanes, latency that other sums hide, length of contiguous memory,
    arithmetic per load, share of outputs that are computed once.
    """
    vectors = tile.columns // tile.width
    sums = tile.rows * vectors
    work = sums * windows.taps_across
    weights = windows.taps_across if windows.weights is not None else 0
    loads = vectors * (count_input_elements(windows, tile.rows) + weights)
    inner = [-(-windows.extents[-1] // tile.columns), -(-find_row_extent(windows) // tile.rows)]
    once = (
        windows.extents[-1]
        * find_row_extent(windows)
        / (math.prod(inner) * tile.columns * tile.rows)
    )
    full = tile.width / hardware.lanes(windows.bits)
    latency_share = min(1.0, max(sums, AHEAD / windows.taps) / cost.hiding_sums(hardware.machine))
    run = tile.columns * windows.bits
    near = run / (run + 8 * LINE_BYTES)  # single lines that are far apart are read slowly
    return full * latency_share * near * work / (work + loads) * once


def choose_tile_threshold(
    windows: Windows, tile: WindowTile, hardware: HardwareParams
) -> int | None:
    """Choose the knob `shared_from`: the steps of all windows from which threads share tiles."""
    default = find_threshold(windows, None)
    nanoseconds = estimate_core_ns(windows, tile, hardware)
    return cost.choose_threshold(windows.steps, default, nanoseconds, hardware)


def find_threshold(windows: Windows, shared_from: int | None) -> int:
    """Return the steps of all windows from which threads share the tiles, by their knob."""
    if shared_from is not None:
        return shared_from
    return 0 if windows.calls_ns >= CALLS_NS else WINDOW_PRODUCTS


def estimate_core_ns(windows: Windows, tile: WindowTile, hardware: HardwareParams) -> float:
    """Estimate the time of windows on one core: of their arithmetic, or their memory traffic."""
    peak_ns = cost.fma_ns(2 * windows.steps, windows.bits, hardware)
    arithmetic_ns = peak_ns / _estimate_core_efficiency(tile, windows, hardware)
    traffic = (windows.input_elements + math.prod(windows.extents)) * windows.bits / 8
    return max(arithmetic_ns, cost.copy_ns(traffic, hardware)) + windows.calls_ns


def find_row_extent(windows: Windows) -> int:
    """Return the extent of the last but one spatial axis, or 1."""
    return windows.extents[-PAIR] if len(windows.extents) >= PAIR else 1


def count_input_elements(windows: Windows, rows: int) -> int:
    """Count the elements that a tile reads of a row of the input."""
    return (rows - 1) * windows.stride + windows.reach


def can_fit_tile(
    windows: Windows, rows: int, columns: int, width: int, hardware: HardwareParams
) -> bool:
    """Tell whether a tile fits the registers, and its sums and input row fit the stack."""
    vectors = columns // width
    row = count_input_elements(windows, rows) if windows.before or rows > 1 else 0
    weights = windows.taps_across if windows.weights is not None else 0
    stack = max(rows, row) * columns * windows.bits // 8
    if 0 < weights <= MANY and not hardware.machine.memory_operands:  # LLVM loads all weights first
        return vectors * (rows + 1 + windows.taps) <= hardware.registers and stack < STACK
    long = rows * 2 >= find_row_extent(windows) or weights >= 2 * MANY
    input_registers = 1 if weights > MANY and long else row
    return vectors * (rows + input_registers + weights) <= hardware.registers and stack < STACK
