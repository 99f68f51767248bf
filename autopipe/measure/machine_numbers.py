"""Derive the numbers of a machine from kernel times. Nothing here runs or imports TVM.

Example, a Zen 4: two dependent integer instructions take 0.541 ns, so a cycle takes 0.271 ns, which
is 3.7 GHz. A dependent FMA takes 1.082 ns: 4 cycles. Of independent 256-bit ones two end in a
cycle, of 512-bit ones one: there are two units of 256 bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MEASURED: Final = "measured"
SYSTEM: Final = "from the system"

_CHAINED: Final = 2
"""Cycles of a step of `machine_kernels.build_integer_chain`."""
_AS_FAST: Final = 0.75
"""Vectors that issue at this share of the rate of shorter ones have the width of a unit."""
_NEXT_LEVEL: Final = 2.0
"""A load that takes this many times as long comes from the next cache; a miss of the TLB alone
takes 1.5 times as long as a load from the second level."""
_RISING: Final = 1.3
"""The same from one size to the next while a part of the loads still hits."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a machine, by the name of its field in `Machine`."""

    name: str
    value: float | None
    """None where it cannot be measured here."""
    source: str = MEASURED
    """The method of measurement, or the reason of its failure."""


def compute_frequency_ghz(chain_ns: float) -> float:
    """Compute the frequency in GHz from the nanoseconds of a step of the integer chain."""
    return _CHAINED / chain_ns


def find_fma_units(cycles: Mapping[int, float]) -> tuple[int, int]:
    """Return the bits of an FMA unit, and the number of units.

    `cycles` is the reciprocal throughput of independent FMAs, by the bits of their vectors.
    """
    bits = min(cycles)
    for wider in sorted(cycles):
        if cycles[bits] >= _AS_FAST * cycles[wider]:
            bits = wider
    return bits, max(1, round(1 / cycles[bits]))


def find_cache_sizes(latencies: Sequence[tuple[int, float]]) -> list[int]:
    """Find the sizes of the caches in bytes, the first level first, within the range of samples.

    `latencies` are the footprint of a pointer chase in bytes, in ascending order, and the time of
    a load, which rises by a factor where a cache ends.
    """
    sizes: list[int] = []
    fits, rising = 0, False
    plateau = before = latencies[0][1]
    for size, time in latencies:
        if rising and time > _RISING * before:
            plateau = time
        elif time >= _NEXT_LEVEL * plateau:
            sizes.append(fits)
            plateau, rising = time, True
        else:
            plateau = time if rising else plateau
            fits, rising = size, False
        before = time
    return sizes
