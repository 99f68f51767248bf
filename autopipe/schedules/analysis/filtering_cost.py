"""What a convolution costs by minimal filtering, and what directly: cycles, from coarse facts."""

from dataclasses import dataclass

from autopipe.schedules.hardware import Hardware

BYTES = 4
"""Of an element."""

MEMORY = 5.0
"""Bytes in a cycle that a core reads from memory while others do too."""

_STEPS = 1 / 16
"""Cycles that a transform takes for an element, but for writing and reading it."""

CHAINS = 10
"""Independent sums that hide the latency of a fused multiply-add."""

_DIRECT = 1.15
"""Cycles that a direct convolution takes for one in which all lanes multiply."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """The knobs."""

    tiles: int
    """Tiles in a parallel block; divides their count."""
    parts: int
    """Parallel blocks of output channels; each of them transforms the input again."""
    chunk: int
    """Output channels between product and transformation back; divides a block of them."""
    rows: int
    """Tiles that are summed in registers; divides `tiles`."""
    columns: int
    """Output channels that are summed in registers; divides `chunk`."""
    width: int
    """Output channels in a vector, a power of two; divides `columns`."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """A function that the template serves, as far as the knobs depend on it."""

    positions: int
    """Products that a tile takes."""
    tiles: int
    inputs: int
    """Input channels."""
    outputs: int
    """Output channels."""


def estimate(found: Filtering, knobs: Blocking, hardware: Hardware) -> float:
    """Estimate the cycles that the busiest core takes."""
    jobs = -(-found.tiles // knobs.tiles * knobs.parts // hardware.cores)
    outputs = found.outputs // knobs.parts
    inputs, sums = (found.positions * knobs.tiles * n for n in (found.inputs, outputs))
    weights = found.positions * found.inputs * outputs
    vectors = knobs.columns // knobs.width
    issue = max(1.0, CHAINS / (knobs.rows * vectors), 1 / knobs.rows + 1 / vectors)
    issue += 0.05 * (4 / knobs.rows + 1 / vectors)  # weights come from the second-level cache
    products = jobs * inputs * outputs / knobs.width / 2 * issue
    kept = BYTES * (inputs + found.positions * knobs.tiles * knobs.chunk)
    reads = BYTES * weights / MEMORY  # another layer's weights are in the caches
    reads += (jobs - 1) * BYTES * weights / _rate(BYTES * weights + kept, hardware)
    reads += jobs * BYTES * inputs * (outputs / knobs.chunk) / _rate(kept, hardware)
    transforms = jobs * (inputs + sums) * (_STEPS + 2 * BYTES / _rate(kept, hardware))
    return overlapped(products, reads) + transforms


def overlapped(computes: float, reads: float) -> float:
    """Estimate the cycles of work that reads from memory or caches what it computes with."""
    return max(computes, reads) + 0.3 * min(computes, reads)


def _rate(size: int, hardware: Hardware) -> float:
    """Return the bytes in a cycle that a core reads again of so many."""
    return 32.0 if size <= hardware.l2 else 14.0 if size <= hardware.l3 else MEMORY


def direct(products: int, weights: int, hardware: Hardware) -> float:
    """Estimate the cycles that the busiest core takes for a direct convolution."""
    computes = _DIRECT * products / (2 * hardware.lanes(8 * BYTES))
    return overlapped(computes, BYTES * weights / MEMORY) / hardware.cores
