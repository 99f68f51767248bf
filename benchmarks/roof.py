"""What a processor could do at best with a function: the roofline, in seconds.

No schedule is faster than the lesser of two bounds. Arithmetic: so many operations, in full
vectors, on both units of each core. Memory: each operand read once and each result written once,
from the smallest cache that holds them all. Threads share both, after some microseconds in which
they start; where one core ends before that, it works alone.

Example: the sum of rows of [4096, 512] on two cores at 3.5 GHz, with 1 MB of second-level cache
each. 8.4 MB come from the third level at 16 bytes a cycle: 150 us on one core, 80 us on two.
"""

from functools import cache
from typing import Final

from autopipe.schedules.hardware import HardwareParams

_FLOPS: Final = 4
"""Operations of a lane in a cycle: two units, each of which multiplies and adds."""

_L1, _L2, _L3, _MEMORY = 64.0, 32.0, 16.0, 8.0
"""Most bytes that a core moves in a cycle."""

_START: Final = 5e-6
"""Seconds until a second thread has started and is waited for."""


def seconds(flops: float, moved: int, bits: int, hardware: HardwareParams, hertz: float) -> float:
    """Return the shortest time of a call that computes `flops` operations and moves `moved` bytes.

    `bits` is the size of its results' elements.
    """

    def on(cores: int) -> float:
        compute = flops / (_FLOPS * hardware.lanes(bits) * cores)
        return max(compute, moved / (_speed(moved / cores, moved, hardware) * cores)) / hertz

    return min(on(1), on(hardware.cores) + _START)


def _speed(share: float, moved: int, hardware: HardwareParams) -> float:
    if share <= hardware.l1:
        return _L1
    if share <= hardware.l2:
        return _L2
    return _L3 if moved <= hardware.l3 else _MEMORY


@cache
def clock() -> float:
    """Return the cycles of a second, as `autopipe doctor --machine` measures them."""
    import tvm

    from autopipe.measure.measure_machine import measure_frequency

    return measure_frequency(tvm.target.Target("llvm")) * 1e9
