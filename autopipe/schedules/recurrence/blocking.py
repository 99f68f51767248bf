"""The knobs of recurrent layers, all their settings, and an estimate of the time of a setting."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from autopipe.compiler.recurrence.cells import Phase, list_phases
from autopipe.compiler.recurrence.form import Recurrence
from autopipe.schedules.analysis.blocks import Extent, element_bits, parts_of
from autopipe.schedules.analysis.dot_products import list_dot_products
from autopipe.schedules.cost import FULL, LATE_LOAD, parallel_ns, start_ns, step_cycles, to_ns
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.hardware import HardwareParams

SERIAL, APART, TOGETHER = "serial", "apart", "together"
"""Ways to use threads: none; a thread for each direction and part of the batch, without
synchronization; all threads on one step, each on some hidden units, with a barrier after it."""

JOINED: Final = 4
"""int8 products that an instruction adds at once."""
BYTES: Final = ("uint8", "int8")
"""Dtypes of a state and of its weights in int8 layers."""

_VECTORS: Final = (1, 2, 3, 4, 8)
_ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
_SPARE: Final = 2
"""Registers that hold neither sums nor weights."""

# Cycles, measured on a core of an Intel Xeon (Sapphire Rapids) with vectors of 512 bits.
_LOOP: Final = 60.0
"""To begin and end the sums of a tile."""
_L1_LOAD, _L2_LOAD = 0.6, 1.6
"""To load a vector from the first-level cache, and from the second-level cache."""
_FUNCTION: Final = 20.0
"""For the activation functions of a vector of hidden units, per gate."""


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
    """A recurrent layer as the template recurrence schedules it."""

    form: Recurrence
    free: bool
    """Whether the recurrent weights are constants of the model, which the build may pack."""
    fast: bool
    """Whether elementary functions may round differently from libm's."""


@dataclass(frozen=True, slots=True)
class UnitBlocking:
    """The knobs."""

    width: int
    """Hidden units of a tile."""
    rows: int
    """Sequences of a tile."""
    gates: int
    """Gates with sums in registers at once; divides those of each phase."""
    threads: str
    """`serial`, `apart` or `together`."""
    parts: int
    """Parts of the batch for threads `apart`, and of the hidden units for threads `together`."""
    instruction: str = ""
    """Mnemonic of the int8 dot-product instruction; empty for none."""
    lanes: int = 0
    """Number of its accumulators."""

    def share(self, batch: Extent) -> Extent:
        """Return the number of sequences per thread of a batch that may be dynamic."""
        return batch if self.threads == TOGETHER else parts_of(batch, self.parts)


def list_blockings(layer: RecurrentLayer, hardware: HardwareParams) -> Iterator[UnitBlocking]:
    """Yield every setting."""
    form = layer.form
    lanes = _count_lanes(form, hardware)
    steps = list_phases(form, 0)
    widths = [count * lanes for count in _VECTORS if count * lanes <= form.hidden]
    for threads, parts in _list_thread_divisions(form, hardware):
        rows_each = form.batch if threads == TOGETHER else ceil(form.batch / parts)
        for gates in list_divisors(max(len(phase.gates) for phase in steps), form.gates):
            if any(len(phase.gates) % min(gates, len(phase.gates)) for phase in steps):
                continue
            for width in widths or [form.hidden]:
                for rows in _ROWS:
                    vectors = gates * ceil(width / lanes)
                    registers = rows * vectors + min(vectors, 4) + _SPARE
                    if threads == TOGETHER and form.hidden < width * hardware.cores:
                        continue  # a thread would have no tile
                    if rows <= rows_each and registers <= hardware.registers:
                        dot = _choose_instruction(form, width, hardware)
                        yield UnitBlocking(width, rows, gates, threads, parts, *dot)


def _list_thread_divisions(form: Recurrence, hardware: HardwareParams) -> Iterator[tuple[str, int]]:
    """Yield the ways to use threads, each with the parts of the batch."""
    yield SERIAL, 1
    if hardware.cores == 1:
        return
    ways, most = len(form.directions), min(form.batch, hardware.cores)
    for parts in range(1, most + 1):
        if ways * parts > 1 and not (form.rounded and parts > 1):
            yield APART, parts
    yield TOGETHER, hardware.cores


def _choose_instruction(form: Recurrence, width: int, hardware: HardwareParams) -> tuple[str, int]:
    """Return the best int8 dot-product instruction and its lanes; ("", 0) without one."""
    if form.rounded and form.hidden % JOINED == 0:
        for dot in list_dot_products(BYTES):
            plain = dot.group == JOINED and dot.cost == 1
            if plain and width % dot.lanes == 0 and dot.runs_on(hardware.features):
                return dot.name, dot.lanes
    return "", 0


def estimate_ns(layer: RecurrentLayer, knobs: UnitBlocking, hardware: HardwareParams) -> float:
    """Estimate the time of a setting in nanoseconds."""
    form = layer.form
    ways, steps = len(form.directions), list_phases(form, 0)
    costs = [_estimate_phase(form, phase, knobs, hardware) for phase in steps]
    matmul_steps = form.steps - form.resting
    cycles = sum(matmul_steps * products + form.steps * functions for products, functions in costs)
    machine = hardware.machine
    work = to_ns(cycles, machine)
    if knobs.threads == APART:
        jobs = ways * knobs.parts
        return parallel_ns(jobs * work, jobs, hardware)
    if knobs.threads == SERIAL:
        return ways * work
    barriers = form.steps * (len(steps) + form.rounded)
    return ways * (work + barriers * machine.barrier_ns) + start_ns(machine)


def _estimate_phase(
    form: Recurrence, phase: Phase, knobs: UnitBlocking, hardware: HardwareParams
) -> tuple[float, float]:
    """Estimate the cycles of a phase of a step on the busiest thread.

    Returns those of the products of all tiles, and those of activation functions, as far as they
    are not hidden by products.

    The weights in the cache are reused when the next step reads all tiles in reverse order, except
    for one tile.
    """
    count, gates = len(phase.gates), min(knobs.gates, len(phase.gates))
    blocks = ceil(int(knobs.share(form.batch)) / knobs.rows)
    sharing = hardware.cores if knobs.threads == TOGETHER else 1
    tiles = ceil(ceil(form.hidden / knobs.width) / sharing)
    vectors = ceil(knobs.width / _count_lanes(form, hardware))  # of a tile, per gate

    def estimate_term(load: float) -> float:
        """Estimate the cycles of one term of the sums of a tile, by those of a vector load."""
        loads, latency = vectors * gates, hardware.machine.fma_latency_cycles + LATE_LOAD
        sums = knobs.rows * loads
        return max(step_cycles(hardware.machine, sums, loads + knobs.rows, latency), loads * load)

    unit_bytes = form.hidden * knobs.width * (1 if form.rounded else element_bits(form.dtype) // 8)
    size, room = unit_bytes * count, FULL * hardware.l1
    near = 1.0 if size * tiles <= room else max(0.0, room - size) / (size * tiles)
    first_load = near * _L1_LOAD + (1 - near) * _L2_LOAD
    later_load = _L1_LOAD if unit_bytes * gates <= room else _L2_LOAD  # with a tile in a cache
    terms = estimate_term(first_load) + (blocks - 1) * estimate_term(later_load)
    steps = form.hidden // (JOINED if knobs.instruction else 1)
    products = count // gates * (steps * terms + blocks * _LOOP)
    rows = blocks * knobs.rows * vectors * count
    functions, idle = rows * _FUNCTION, max(0.0, products - rows * form.hidden / 2)
    return tiles * products, tiles * functions - (tiles - 1) * min(functions, idle)


def _count_lanes(form: Recurrence, hardware: HardwareParams) -> int:
    return hardware.lanes(element_bits(form.dtype))
