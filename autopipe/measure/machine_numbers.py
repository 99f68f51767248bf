"""From times of kernels to the numbers of a machine. Nothing here runs or imports TVM.

Example, a Zen 4: two dependent integer instructions take 0.541 ns, so a cycle takes 0.271 ns, which
is 3.7 GHz. An FMA that waits for the last one takes 1.082 ns: 4 cycles. Of independent ones of 256
bits two end in a cycle, of 512 bits one: its units have 256 bits, and there are two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

MEASURED: Final = "measured"
SYSTEM: Final = "from the system"

_CHAINED: Final = 2
"""Cycles of a step of `machine_kernels.integer_chain`."""
_AS_FAST: Final = 0.75
"""Vectors that issue at this share of the rate of shorter ones fit a unit."""
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
    """How it was found, or why it was not."""

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def compute_frequency_ghz(chain_ns: float) -> float:
    """Return cycles in a nanosecond, from the time of a step of the integer chain."""
    return _CHAINED / chain_ns


def find_fma_units(cycles: Mapping[int, float]) -> tuple[int, int]:
    """Return bits of a unit for FMAs, and how many units there are.

    `cycles` are those between the ends of two independent FMAs, by the bits of their vectors.
    """
    bits = min(cycles)
    for wider in sorted(cycles):
        if cycles[bits] >= _AS_FAST * cycles[wider]:
            bits = wider
    return bits, max(1, round(1 / cycles[bits]))


def find_cache_sizes(latencies: Sequence[tuple[int, float]]) -> list[int]:
    """Return the bytes of the caches, the first level first, as far as they end in the samples.

    `latencies` are bytes that a pointer chase goes through, in ascending order, and the time of a
    load, which rises by a factor where a cache ends.
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
