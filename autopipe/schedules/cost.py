"""Estimates times of arithmetic and memory traffic from a processor's row in the machine table.

Times are in nanoseconds. Estimates that only compare settings of one kernel count cycles of its
inner loop, by `step_cycles`.

Example: a matmul of [128, 256] by [256, 512] floats on one core of a Zen 4. 16.8 M multiply-adds at
2 x 8 a cycle of 3.7 GHz are 283 us; 0.9 MB are read and written at 32 bytes a cycle in 8 us. No
schedule takes less than the maximum of the two.
"""

from typing import Final

from autopipe.environment.machines import Machine
from autopipe.schedules.divisors import floor_power
from autopipe.schedules.hardware import HardwareParams

LOADS: Final = 2
"""Vectors that are loaded in a cycle, as long as they lie in the first-level cache."""

LATE_LOAD: Final = 0.5
"""Further cycles of latency where sums wait for loads, too."""

SHARED_BANDWIDTH: Final = 0.5
"""Part of its bandwidth from the shared cache that a core has while the others read, too."""

FULL: Final = 0.75
"""Part of a cache that is available for data with reuse, beside streamed data."""

_LATE_START: Final = 1.375
"""Factor of the time to start a second thread: one that starts late must not cost more than it
saves."""

_COPIED_IN_MODEL: Final = 1 / 0.0112
"""Bytes that a core reads and writes in a nanosecond, in vectors, between functions of a model:
half of them lie in another core's cache, which is slower than any core is fast."""


_TILES, _TILE_BITS, _TILE_PRODUCTS = "amx-tile", 16, 8
"""The feature of AMX, the longest elements that it multiplies, and its multiply-adds in a cycle for
each one of the vector units: 1024 of bfloat16 and 2048 of int8 (Intel's optimization manual)."""


def to_ns(cycles: float, machine: Machine) -> float:
    """Convert cycles to nanoseconds."""
    return cycles / machine.frequency_ghz


def step_cycles(machine: Machine, sums: float, loads: float, latency: float) -> float:
    """Return the cycles of a step of a sum of products, in vectors.

    It takes as long as its multiply-adds, its loads or the latency of one multiply-add, whichever
    is longest.

    Example: 12 sums, 8 loads and a latency of 4 cycles: max(12 / 2, 8 / 2, 4) = 6.
    """
    return max(sums / machine.fma_ports, loads / LOADS, latency)


def hiding_sums(machine: Machine) -> float:
    """Return how many independent sums hide the latency of a multiply-add."""
    return machine.fma_latency_cycles * machine.fma_ports


def fma_ns(flops: float, bits: int, hardware: HardwareParams) -> float:
    """Return the minimum time of `flops` operations on one core; a multiply-add counts as two.

    They are computed in full vectors of elements of `bits` bits, on all units. AMX tiles multiply
    elements of up to 16 bits eight times as fast.
    """
    machine = hardware.machine
    lanes = max(1, min(machine.vector_bits_of_units, hardware.vector_bits) // bits)
    amx_factor = _TILE_PRODUCTS if bits <= _TILE_BITS and _TILES in hardware.features else 1
    return to_ns(flops / (2 * machine.fma_ports * lanes * amx_factor), machine)


def level_bytes_per_ns(size: float, hardware: HardwareParams) -> float:
    """Return the read bandwidth of a core for a working set of `size` bytes, in bytes/ns.

    It is that of the first cache level that holds the working set, or of memory.
    """
    machine = hardware.machine
    for cache, bytes_per_cycle in (
        (hardware.l1, machine.l1_bytes_per_cycle),
        (hardware.l2, machine.l2_bytes_per_cycle),
        (hardware.l3, machine.l3_bytes_per_cycle),
    ):
        if size <= cache:
            return bytes_per_cycle * machine.frequency_ghz
    return machine.memory_bytes_per_ns


def copy_ns(copied_bytes: float, hardware: HardwareParams) -> float:
    """Return the time in which a core reads and writes `copied_bytes` bytes sequentially.

    Inside a model, and where the second-level cache is too small, the rate is the same for all
    processors.
    """
    is_cached = not hardware.in_model and copied_bytes <= hardware.l2
    return copied_bytes / (hardware.machine.copy_bytes_per_ns if is_cached else _COPIED_IN_MODEL)


def lower_bound_ns(flops: float, traffic: float, bits: int, hardware: HardwareParams) -> float:
    """Return a lower bound of the time of a function, for any schedule.

    It computes `flops` operations on elements of `bits` bits, and reads and writes `traffic` bytes
    once, with all cores and without starting them. After the roofline model (Williams, Waterman,
    Patterson, CACM 2009). Minimal filtering has fewer operations than the convolution it stands
    for: 2.25 times with tiles of 2 x 2, 5.1 times with those of 6 x 6.
    """
    share = traffic / hardware.cores
    if traffic > hardware.l3:  # which all cores share
        read_ns = share / hardware.machine.memory_bytes_per_ns
    else:
        read_ns = share / level_bytes_per_ns(share, hardware)
    return max(fma_ns(flops, bits, hardware) / hardware.cores, read_ns)


def parallel_ns(nanoseconds: float, jobs: int, hardware: HardwareParams) -> float:
    """Return the time of `jobs` equal parts on all cores; `nanoseconds` is that on one core."""
    return nanoseconds * -(-jobs // hardware.cores) / jobs + start_ns(hardware.machine)


def threads_pay(nanoseconds: float, machine: Machine) -> bool:
    """Tell whether a second thread pays for work of `nanoseconds` on one; it does half of it."""
    return nanoseconds >= 2 * start_ns(machine)


def choose_threshold(
    work: int, default: int, nanoseconds: float, hardware: HardwareParams
) -> int | None:
    """Choose the work from which threads share a function, for the knob `shared_from`.

    `work` is that of the function, in the unit of `default`, and `nanoseconds` its time on one
    core. None stands for `default`, where it decides as the processor wants it; else the result is
    the power of two next to `work` that does.

    Example: 423360 steps of windows take 7.2 us or more on a Zen 4, where a second thread pays from
    5.5 us on. The default, 524288 steps, leaves them to one thread, so the knob is 262144.
    """
    pays = threads_pay(nanoseconds, hardware.machine)
    if hardware.cores == 1 or pays == (work >= default):
        return None
    return floor_power(work) if pays else 2 * floor_power(work)


def start_ns(machine: Machine) -> float:
    """Return the minimum time in nanoseconds that a second thread must save."""
    return _LATE_START * machine.thread_start_ns
