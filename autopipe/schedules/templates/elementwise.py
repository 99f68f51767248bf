"""Template for functions without reductions that write in order what they read in order, or nearly.

Elementwise chains, broadcasts, slices, padding, concatenation, resizing, lookups. The output is
written a vector at a time. Conditions on the last axis leave the inner loop: it is written out
in parts of which each has but one. What reads across memory is for template `transpose`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from autopipe.schedules.analysis.movement import Movement, combined, recognize
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.primitives import ELEMENTS, spread

NAME: Final = "elementwise"
VERSION: Final = 1

MOST_VECTORS = 4
"""Hardware vectors in a vectorized loop."""

VECTORS = 2
"""The same where nothing is measured."""

NARROW = 4
"""Elements in the least vector that TVM is asked for; LLVM does better on what is narrower."""

WRITTEN_OUT = 256
"""Iterations that are written out for the sake of conditions."""

SHORT = 8
"""Iterations that are written out one after the other."""

ROWS = 16
"""Iterations of the outer loops that are enough to divide among threads."""


@dataclass(frozen=True, slots=True)
class Run:
    """The knobs."""

    width: int
    """Elements in the vectorized loop, a power of two; 1 leaves vectors to LLVM."""


def match(sch: Schedule) -> Movement | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    return recognize(sch)


def settings(found: Movement, hardware: Hardware) -> Iterator[Run]:
    """Yield every width of the vectorized loop."""
    run = _run(found)
    width = 1
    while run % width == 0 and width <= MOST_VECTORS * hardware.lanes(found.bits):
        if width == 1 or width >= NARROW:
            yield Run(width)
        width *= 2


def fill(found: Movement, hardware: Hardware) -> Run:
    """Return the knobs for a processor, without measuring."""
    most = VECTORS * hardware.lanes(found.bits)
    return Run(max(run.width for run in settings(found, hardware) if run.width <= max(1, most)))


def apply(sch: Schedule, found: Movement, run: Run) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    block = combined(sch)
    loops = sch.get_loops(block)
    outer, last = loops[: -found.tail], sch.fuse(*loops[-found.tail :])
    if not found.parts and _run(found) < int(sch.get(last).extent):
        head, last = sch.split(last, [None, _run(found)])
        outer.append(head)
    divided = bool(found.parts)
    if run.width > 1:
        last, vector = sch.split(last, [None, run.width])
        sch.vectorize(vector)
    elif outer and int(sch.get(last).extent) <= SHORT:
        sch.unroll(last)
        last, divided = outer.pop(), False
    rows = math.prod(int(sch.get(loop).extent) for loop in outer)
    if not divided and (not outer or (rows < ROWS and run.width > 1)):
        outer.append(last)
    if outer:
        spread(sch, block, sch.fuse(*outer), ELEMENTS)
    if divided:
        _write_out(sch, last, [part // run.width for part in found.parts])


def _write_out(sch: Schedule, loop: LoopRV, parts: Sequence[int]) -> None:
    """Unroll a loop as far as conditions are constant in what is left of it.

    TVM's own `loop_partition` defines the same variables twice, which its passes refuse.
    """
    alike = math.gcd(*parts)
    if sum(parts) // alike <= WRITTEN_OUT:
        sch.unroll(sch.split(loop, [None, alike])[0])


def _run(found: Movement) -> int:
    """Return how many neighbours of the output are alike."""
    return math.prod(found.extents[-found.tail :]) if found.tail > 1 else found.run
