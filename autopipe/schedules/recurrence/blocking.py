"""The knobs of recurrent layers, all their settings, and an estimate of the time of a setting."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from autopipe.compiler.recurrence.cells import Phase, phases
from autopipe.compiler.recurrence.form import Recurrence
from autopipe.schedules.divisors import divisors
from autopipe.schedules.hardware import HardwareParams

SERIAL, APART, TOGETHER = "serial", "apart", "together"
"""Ways to use threads: none; a thread for each direction and part of the batch, which never wait
for each other; all threads on one step, each on some hidden units, and a barrier between steps."""

_VECTORS: Final = (1, 2, 4, 8)
_ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
_SPARE: Final = 2
"""Registers that hold neither sums nor weights."""

_LATENCY: Final = 5.0
"""Cycles until a sum can be added to again: 4, and room for a load that comes late."""
_LOOP: Final = 30.0
"""Cycles to begin and end the sums of a tile."""
_NEAR, _MIDDLE, _FAR = 0.5, 1.25, 3.0
"""Cycles to load a vector from a core's first cache, its second one, and from further away."""
_FULL: Final = 0.75
"""Part of a cache that weights find room in."""
_BARRIER: Final = 3500.0
"""Cycles that threads wait for each other."""
_LAUNCH: Final = 10_000.0
"""Cycles until other threads have begun and ended."""
_FUNCTION: Final = 25.0
"""Cycles for the functions of a vector of hidden units, a gate."""


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
    """A function that the template serves."""

    form: Recurrence
    free: bool
    """Whether the recurrent weights are weights of the model, which the build may pack."""


@dataclass(frozen=True, slots=True)
class UnitBlocking:
    """The knobs."""

    width: int
    """Hidden units of a tile."""
    rows: int
    """Sequences of a tile."""
    gates: int
    """Gates whose sums are in registers at once; divides those of each phase."""
    threads: str
    """`serial`, `apart` or `together`."""
    parts: int
    """Parts of the batch that threads work on, where they work apart."""


def settings(layer: RecurrentLayer, hardware: HardwareParams) -> Iterator[UnitBlocking]:
    """Yield every setting."""
    form = layer.form
    lanes = _lanes(form, hardware)
    steps = phases(form, 0)
    widths = [count * lanes for count in _VECTORS if count * lanes <= form.hidden]
    for threads, parts in _divisions(form, hardware):
        rows_each = ceil(form.batch / parts)
        for gates in divisors(max(len(phase.gates) for phase in steps), form.gates):
            if any(len(phase.gates) % min(gates, len(phase.gates)) for phase in steps):
                continue
            for width in widths or [form.hidden]:
                for rows in _ROWS:
                    vectors = gates * ceil(width / lanes)
                    registers = rows * vectors + min(vectors, 4) + _SPARE
                    if threads == TOGETHER and form.hidden < width * hardware.cores:
                        continue  # a thread would have nothing to do
                    if rows <= rows_each and registers <= hardware.registers:
                        yield UnitBlocking(width, rows, gates, threads, parts)


def _divisions(form: Recurrence, hardware: HardwareParams) -> Iterator[tuple[str, int]]:
    """Yield the ways to use threads, each with the parts of the batch."""
    yield SERIAL, 1
    if hardware.cores == 1:
        return
    ways, most = len(form.directions), min(form.batch, hardware.cores)
    for parts in range(1, most + 1):
        if ways * parts > 1 and not (form.rounded and parts > 1):
            yield APART, parts
    if not form.rounded:
        yield TOGETHER, 1


def fill(layer: RecurrentLayer, hardware: HardwareParams) -> UnitBlocking:
    """Return the setting that is expected to be the fastest."""
    return min(settings(layer, hardware), key=lambda knobs: estimate(layer, knobs, hardware))


def estimate(layer: RecurrentLayer, knobs: UnitBlocking, hardware: HardwareParams) -> float:
    """Return about how many cycles a setting takes."""
    form = layer.form
    ways, steps = len(form.directions), phases(form, 0)
    step = sum(_Cost(form, phase, knobs, hardware).cycles for phase in steps)
    if knobs.threads == APART:
        return form.steps * ceil(ways * knobs.parts / hardware.cores) * step + _LAUNCH
    total = form.steps * ways * step
    if knobs.threads == SERIAL:
        return total
    return total + form.steps * ways * len(steps) * _BARRIER + _LAUNCH


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a phase of a step costs the thread that has most to do."""

    form: Recurrence
    phase: Phase
    knobs: UnitBlocking
    hardware: HardwareParams

    @property
    def cycles(self) -> float:
        """The products and the functions."""
        gates = min(self.knobs.gates, len(self.phase.gates))
        groups = len(self.phase.gates) // gates
        blocks = ceil(ceil(self.form.batch / self.knobs.parts) / self.knobs.rows)
        tiles = ceil(ceil(self.form.hidden / self.knobs.width) / self._sharing)
        terms = self._term(self._first) + (blocks - 1) * self._term(self._again)
        functions = blocks * self.knobs.rows * len(self.phase.gates) * self._vectors
        products = groups * (self.form.hidden * terms + blocks * _LOOP)
        return tiles * (products + functions * _FUNCTION)

    def _term(self, load: float) -> float:
        """Return the cycles of one term of the sums of a tile, by those of loading a vector."""
        vectors, rows = (
            self._vectors * min(self.knobs.gates, len(self.phase.gates)),
            self.knobs.rows,
        )
        return max(rows * vectors / 2, (vectors + rows) / 2, vectors * load, _LATENCY)

    @property
    def _vectors(self) -> int:
        """Vectors of a tile, a gate."""
        return ceil(self.knobs.width / _lanes(self.form, self.hardware))

    @property
    def _sharing(self) -> int:
        return self.hardware.cores if self.knobs.threads == TOGETHER else 1

    @property
    def _first(self) -> float:
        """Cycles to load a vector of weights for the first sequences of a step."""
        size = self.form.hidden**2 * self.form.gates * _bits(self.form) // 8 / self._sharing
        return self._from(size)

    @property
    def _again(self) -> float:
        """The same for the others, which find the weights of the tile in a cache."""
        gates = min(self.knobs.gates, len(self.phase.gates))
        return self._from(self.form.hidden * gates * self.knobs.width * _bits(self.form) // 8)

    def _from(self, size: float) -> float:
        if size <= _FULL * self.hardware.l1:
            return _NEAR
        return _MIDDLE if size <= _FULL * self.hardware.l2 else _FAR


def _lanes(form: Recurrence, hardware: HardwareParams) -> int:
    return hardware.lanes(_bits(form))


def _bits(form: Recurrence) -> int:
    return 64 if form.dtype == "float64" else 32
