"""Estimates the cycles of a convolution by minimal filtering, and of a direct one.

`implementations/winograd.py` compares both; `templates/winograd.py` takes the knobs of the minimum
estimate.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from autopipe.schedules.cost import LATE_LOAD, SHARED_BANDWIDTH, step_cycles
from autopipe.schedules.hardware import HardwareParams

BYTES = 4
"""Bytes of an element: float32."""

_TO_POSITIONS = 0.5
"""Cycles to transform a vector of the input, for each position of a tile."""

_FROM_POSITIONS: Final = MappingProxyType({16: 1.8, 36: 7.5, 64: 10.2})
"""Cycles to transform a vector of sums back, for each position of a tile, by their number.
16 positions fit into registers; of 36 and 64 many are spilled."""

_MAX_L2_RATE = 32.0
"""Maximum of bytes per cycle that products read from the second-level cache: schedules were not
timed on machines for which the table has 64."""

_SINGLE_VECTOR_CYCLES = 0.2
"""Cycles of two products that one vector of weights per row costs, as weights come from lower cache
levels: two and more vectors are a longer contiguous read, over which the cost is spread."""

_DIRECT = 1.15
"""Cycles of a direct convolution for each cycle at peak throughput."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """The knobs; records of schedules hold their names and values."""

    tiles: int
    """Tiles in a parallel block; divides the number of tiles."""
    parts: int
    """Parallel blocks of output channels; each of them transforms the input again."""
    chunk: int
    """Output channels between product and transformation back; divides those of a block."""
    rows: int
    """Tiles with sums in registers; divides `tiles`."""
    columns: int
    """Output channels with sums in registers; divides `chunk`."""
    width: int
    """Output channels in a vector, a power of two; divides `columns`."""


_PAIR, _SPILL = 6, 0.5
"""Registers that two steps need beside the sums, with one vector a row, and further cycles of two
products where a sum is spilled."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """The sizes of a convolution by minimal filtering that determine the knobs."""

    positions: int
    """Products of a tile for each pair of channels: 16, 36 or 64."""
    tiles: int
    """Number of tiles, including the padding of the last block."""
    inputs: int
    """Input channels."""
    outputs: int
    """Output channels."""


def estimate_filtering(filtering: Filtering, knobs: Blocking, hardware: HardwareParams) -> float:
    """Return the estimated cycles of the busiest core."""
    jobs = -(-filtering.tiles // knobs.tiles * knobs.parts // hardware.cores)
    outputs = filtering.outputs // knobs.parts
    inputs, sums = (filtering.positions * knobs.tiles * n for n in (filtering.inputs, outputs))
    weights = filtering.positions * filtering.inputs * outputs
    vectors = knobs.columns // knobs.width
    machine, tile = hardware.machine, knobs.rows * vectors
    latency = machine.fma_latency_cycles + LATE_LOAD
    issue = 2 * step_cycles(machine, tile, knobs.rows + vectors, latency) / tile
    issue += _SINGLE_VECTOR_CYCLES / vectors
    if vectors == 1 and knobs.rows + _PAIR > hardware.registers:  # LLVM unrolls two steps
        issue += _SPILL
    products = jobs * inputs * outputs / knobs.width / 2 * issue
    working_set = BYTES * (inputs + filtering.positions * knobs.tiles * knobs.chunk)
    reads = (
        BYTES * weights / _find_memory_rate(hardware)
    )  # another layer's weights are in the caches
    reads += (
        (jobs - 1) * BYTES * weights / _estimate_read_rate(BYTES * weights + working_set, hardware)
    )
    reads += (
        jobs * BYTES * inputs * (outputs / knobs.chunk) / _estimate_read_rate(working_set, hardware)
    )
    transforms = inputs / math.gcd(filtering.inputs, knobs.width) * _TO_POSITIONS
    transforms += sums / knobs.width * _FROM_POSITIONS[filtering.positions]
    return estimate_overlap(products, reads) + jobs * transforms


def estimate_overlap(computes: float, reads: float) -> float:
    """Return the cycles of overlapped arithmetic and reads; 30 % of the shorter are not hidden."""
    return max(computes, reads) + 0.3 * min(computes, reads)


def _estimate_read_rate(size: int, hardware: HardwareParams) -> float:
    """Return the read bandwidth of a core for a working set of `size` bytes, in bytes per cycle.

    First-level hits are not counted, and the third level is shared with other cores.
    """
    if size <= hardware.l2:
        return min(_MAX_L2_RATE, hardware.machine.l2_bytes_per_cycle)
    if size <= hardware.l3:
        return hardware.machine.l3_bytes_per_cycle * SHARED_BANDWIDTH
    return _find_memory_rate(hardware)


def _find_memory_rate(hardware: HardwareParams) -> float:
    """Return the memory bandwidth of a core in bytes per cycle."""
    return hardware.machine.memory_bytes_per_ns / hardware.machine.frequency_ghz


def estimate_direct(products: int, weights: int, hardware: HardwareParams) -> float:
    """Return the estimated cycles of the busiest core for a direct convolution.

    `products` and `weights` are the numbers of multiply-adds and of elements of the kernel.
    """
    computes = _DIRECT * products / (2 * hardware.lanes(8 * BYTES))
    return (
        estimate_overlap(computes, BYTES * weights / _find_memory_rate(hardware)) / hardware.cores
    )
