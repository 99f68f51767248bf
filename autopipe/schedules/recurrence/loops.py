"""Writes the loops of a recurrent layer for a setting of the knobs, as new TIR."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np
from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.recurrence.cells import Write, phases
from autopipe.compiler.recurrence.plain import (
    BLOCK,
    ROUNDED,
    Tensors,
    Unit,
    as_byte,
    number,
    serial,
)
from autopipe.schedules.analysis.expressions import elements, whole
from autopipe.schedules.divisors import divisors
from autopipe.schedules.recurrence import functions
from autopipe.schedules.recurrence.blocking import APART, TOGETHER, UnitBlocking
from autopipe.schedules.recurrence.packing import PackedGates, first

_RANGE: Final = "range"
"""The least and the largest state of a step."""

_LANES: Final = 16
"""Most hidden units in a vector: those of the longest registers there are."""

_LINE: Final = 64
"""Bytes of a cache line."""

_SOON: Final = (0, 3, 1)
"""How LLVM takes a prefetch: for reading, into the nearest cache, as data."""

_UNROLL: Final = 4
"""Most terms of a sum that are written out."""

_LAUNCH: Final = "pragma_parallel_launch_point"
"""TVM's mark of what all threads run, each all of it but for parallel loops."""
_WAIT: Final = "pragma_parallel_barrier_when_finish"
"""TVM's mark of what all threads have to end before any goes on."""


def write(
    tensors: Tensors, packed: Sequence[PackedGates], knobs: UnitBlocking, *, fast: bool
) -> tirx.Stmt:
    """Return the loops over all steps.

    `fast` tells whether elementary functions may round differently from libm's.
    """
    form = tensors.form
    read = [tensors[name] for name in form.inputs if name != "r"]
    read += [] if form.idle else [packed[0].buffer]
    ways, rows = len(form.directions), knobs.sequences(form.batch)
    with IRBuilder() as builder, _jobs(knobs, ways * knobs.parts) as job, T.sblock(BLOCK):
        T.reads(*map(whole, read))
        T.writes(*(whole(tensors[name]) for name in form.outputs))
        states = _states(tensors, rows)
        with _directions(knobs, job, ways) as way:
            for direction in range(ways):
                place = _Place(direction, first(job % knobs.parts, rows, form.batch), rows)
                run = _Pass(tensors, packed, knobs, place, states, fast)
                if ways == 1:
                    run.write()
                else:
                    with T.If(way == direction), T.Then():
                        run.write()
    return builder.get()


def _jobs(knobs: UnitBlocking, jobs: int) -> Any:  # noqa: ANN401 - a frame of TVM's builder
    """Return the loop over directions and parts of the batch, unless all threads share each."""
    if knobs.threads == TOGETHER:
        return serial(1)
    return (T.parallel if knobs.threads == APART else T.serial)(number(0), number(jobs))


@contextmanager
def _directions(knobs: UnitBlocking, job: Expr, ways: int) -> Iterator[Expr]:
    """Yield the direction of a job; if threads share each, launch them and go through all."""
    if knobs.threads != TOGETHER:
        yield job // knobs.parts
        return
    with T.attr(tirx.const(0), _LAUNCH, 1), serial(ways) as way:
        yield way


def _states(tensors: Tensors, rows: int) -> dict[str, Any]:
    """Return buffers of all that steps hand on: two that take turns, of sequences by units."""
    form = tensors.form
    names = {write.target for phase in phases(form, 0) for write in phase.writes}
    sizes = dict.fromkeys(sorted(names), 2 * rows * form.hidden)
    if form.rounded:
        sizes |= {ROUNDED: rows * form.hidden, _RANGE: 2}
    return {name: T.sblock_alloc_buffer((size,), form.dtype) for name, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class _Place:
    """What one job works on."""

    direction: int
    first: Expr
    """Its first sequence."""
    rows: int
    """How many sequences it has."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """The loops of one direction, over some sequences."""

    tensors: Tensors
    packed: Sequence[PackedGates]
    knobs: UnitBlocking
    place: _Place
    states: Mapping[str, Any]
    fast: bool
    """Whether elementary functions may round differently from libm's."""

    def write(self) -> None:
        """Write the loops."""
        form, tensors, way = self.tensors.form, self.tensors, self.place.direction
        size = self.place.rows * form.hidden
        with self._each_tile() as tile:
            for name in form.states:
                for row, unit in self._units(tile):
                    start = tensors.first(way, name, self.place.first + row, unit)
                    T.buffer_store(self.states[name], start, [row * form.hidden + unit])
        with serial(form.steps) as step:
            # bound here: TVM would share a product with 2 sizes, and define it where not all see it
            turns = T.Bind(step % 2 * size), T.Bind((step + 1) % 2 * size)
            if form.rounded:
                self._round(step, turns[0])
            written: set[str] = set()
            for copy in self.packed:
                with self._each_tile(step) as tile, serial(self._blocks) as block:
                    row = first(block, self.knobs.rows, self.place.rows)
                    _Tile(self, copy, step, turns, tile, row, frozenset(written)).write()
                written.update(write.target for write in copy.phase.writes)
        with self._each_tile() as tile:
            for name in form.states:
                for row, unit in self._units(tile):
                    at = self.place.first + row
                    value = self.states[name][form.steps % 2 * size + row * form.hidden + unit]
                    value = tensors.last(at, value)
                    T.buffer_store(tensors[f"last_{name}"], value, [number(way), at, unit])

    def _round(self, step: Expr, turn: Expr) -> None:
        """Write the state as bytes would hold it whose range is that of all sequences."""
        form, state, span = self.tensors.form, self.states["h"], self.states[_RANGE]
        for end in range(2):
            T.buffer_store(span, tirx.const(0, form.dtype), [end])
        with serial(self.place.rows) as row, serial(form.hidden) as unit:
            at = row * form.hidden + unit
            value = self.tensors.heard(step, self.place.first + row, state[turn + at])
            T.buffer_store(span, tirx.min(span[0], value), [0])
            T.buffer_store(span, tirx.max(span[1], value), [1])
        with serial(self._tiles) as tile:
            for row, unit in self._units(tile):
                at = row * form.hidden + unit
                value = as_byte(state[turn + at], span[0], span[1])
                T.buffer_store(self.states[ROUNDED], value, [at])

    @property
    def _tiles(self) -> int:
        return ceil(self.tensors.form.hidden / self.knobs.width)

    @property
    def _blocks(self) -> int:
        return ceil(self.place.rows / self.knobs.rows)

    @contextmanager
    def _each_tile(self, step: Expr | None = None) -> Iterator[Expr]:
        """Write the loop over the tiles, which threads share if they work together.

        Every other step goes through them backwards: it begins with the weights that the step
        before has read last, while a cache still holds them. In tiles 0 to 3 of two threads:

            step 0: 0 1 | 2 3    step 1: 1 0 | 3 2    step 2: 0 1 | 2 3
        """
        threads = self.knobs.parts if self.knobs.threads == TOGETHER else 1
        share = ceil(self._tiles / threads)
        with ExitStack() as frames:
            start = number(0)
            if threads > 1:
                frames.enter_context(T.attr(tirx.const(0), _WAIT, 1))
                start = frames.enter_context(T.parallel(number(0), number(threads))) * share
            turn = frames.enter_context(serial(share))
            if step is not None and share > 1:
                turn = tirx.Select(step % 2 == 0, turn, number(share - 1) - turn)
            tile = T.Bind(start + turn)
            if threads * share > self._tiles:
                frames.enter_context(T.If(tile < number(self._tiles)))
                frames.enter_context(T.Then())
            yield tile

    def _units(self, tile: Expr) -> Iterator[tuple[Expr, Expr]]:
        """Write the loops over all sequences and the units of a tile."""
        width = self.knobs.width
        with serial(self.place.rows) as row:
            for lane in vectors(width):
                yield row, first(tile, width, self.tensors.form.hidden) + lane


@dataclass(frozen=True, slots=True)
class _Tile:
    """Some hidden units of some sequences, in one phase of a step."""

    run: _Pass
    copy: PackedGates
    step: Expr
    turns: tuple[Expr, Expr]
    """Where the states begin that the step before has written, and those that this one writes."""
    tile: Expr
    row: Expr
    """The first sequence, of those that the job has."""
    written: frozenset[str]
    """States that this step has written."""

    def write(self) -> None:
        """Write the sums of the gates, then what becomes of them."""
        knobs, phase = self.run.knobs, self.copy.phase
        with T.sblock(f"{BLOCK}_tile"):
            T.reads()
            T.writes()
            shape = (len(phase.gates), knobs.rows, knobs.width)
            done = T.sblock_alloc_buffer(shape, self.run.tensors.form.dtype, scope="local")
            for group in range(len(phase.gates) // self.copy.gates):
                self._sum(group, done)
            written = set(self.written)
            for write in phase.writes:
                with serial(knobs.rows) as row:
                    for lane in vectors(knobs.width):
                        self._store(write, row, lane, done, frozenset(written))
                written.add(write.target)

    def _sum(self, group: int, done: Any) -> None:  # noqa: ANN401 - a buffer
        """Write the sums of some gates, in registers, and keep them."""
        run, copy, knobs = self.run, self.copy, self.run.knobs
        which = [copy.phase.gates[group * copy.gates + at] for at in range(copy.gates)]
        shape = (knobs.rows, copy.gates, knobs.width)
        sums = T.sblock_alloc_buffer(shape, run.tensors.form.dtype, scope="local")
        if not run.tensors.form.idle:
            self._fetch(which)
        for at in range(copy.gates):
            for row, lane in self._elements():
                T.buffer_store(sums, tirx.const(0, sums.ty.dtype), [row, number(at), lane])
        if not run.tensors.form.idle:
            self._add(group, sums)
        for at, gate in enumerate(which):
            for row, lane in self._elements():
                start = self._scope(row, lane, {}, self.written).start(copy.phase, gate)
                place = [number(group * copy.gates + at), row, lane]
                T.buffer_store(done, start + sums[row, number(at), lane], place)

    def _fetch(self, gates: Sequence[int]) -> None:
        """Have the input's part of some gates brought near while products are added.

        It comes from far away: it is larger than a cache, and each number is read once.
        """
        line = _LINE // np.dtype(self.run.tensors.form.dtype).itemsize
        for gate in gates:
            with T.unroll(number(0), number(self.run.knobs.rows)) as row:
                for unit in range(0, self.run.knobs.width, line):
                    entry = self._scope(row, number(unit), {}, self.written).entry(gate)
                    address = tirx.address_of(entry)
                    T.evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *_SOON))

    def _add(self, group: int, sums: Any) -> None:  # noqa: ANN401 - a buffer
        """Add the products of a state and the weights of some gates to their sums."""
        run, copy, knobs, form = self.run, self.copy, self.run.knobs, self.run.tensors.form
        unroll, way = max(divisors(form.hidden, _UNROLL)), number(run.place.direction)
        source = self._rounded if form.rounded else self._state(copy.phase.source, self.written)
        count = number(form.hidden // unroll)
        if form.resting:
            count = tirx.Select(self.step > 0, count, number(0))
        with (
            T.serial(number(0), count) as outer,
            T.unroll(number(0), number(unroll)) as inner,
            T.unroll(number(0), number(knobs.rows)) as row,
        ):
            term = outer * unroll + inner
            for at in range(copy.gates):
                for lane in self._lanes():
                    place = copy.place(number(group), term, number(at), lane)
                    weight = copy.buffer[way, self.tile, place]
                    product = source(self.row + row, term) * weight
                    value = sums[row, number(at), lane] + product
                    T.buffer_store(sums, value, [row, number(at), lane])

    def _store(
        self,
        write: Write,
        row: Expr,
        lane: Expr,
        done: Any,  # noqa: ANN401 - a buffer
        written: frozenset[str],
    ) -> None:
        """Write a state of a hidden unit, and the output, which is the hidden state."""
        run, tensors, target = self.run, self.run.tensors, self.run.states[write.target]
        totals = {
            gate: done[number(at), row, lane] for at, gate in enumerate(self.copy.phase.gates)
        }
        scope = self._scope(row, lane, totals, written)
        value, place = write.value(scope), self._at(self.turns[1], row + self.row, scope.unit)
        if run.fast:
            value = functions.inline(value)
        if write.target in tensors.form.states:
            old = target[self._at(self.turns[0], row + self.row, scope.unit)]
            value = tensors.held(self.step, scope.row, value, old)
        T.buffer_store(target, value, [place])
        if write.target == "h":
            zero = tirx.const(0, tensors.form.dtype)
            shown = tensors.held(self.step, scope.row, target[place], zero)
            way = number(run.place.direction)
            at = tensors.place(run.place.direction, self.step, scope.row)
            T.buffer_store(tensors["y"], shown, [at, way, scope.row, scope.unit])

    def _scope(
        self, row: Expr, lane: Expr, totals: Mapping[int, Expr], written: frozenset[str]
    ) -> Unit:
        run = self.run
        unit = first(self.tile, run.knobs.width, run.tensors.form.hidden) + lane
        names = [name for name in run.states if name not in {ROUNDED, _RANGE}]
        states = {name: self._state(name, written)(self.row + row, unit) for name in names}
        at = run.place.first + self.row + row
        return Unit(run.tensors, run.place.direction, self.step, at, unit, totals, states)

    def _state(self, name: str, written: frozenset[str]) -> Callable[[Expr, Expr], Expr]:
        """Return a state, as this step has written it or as the one before has left it."""
        turn = self.turns[name in written]
        return lambda row, unit: self.run.states[name][self._at(turn, row, unit)]

    def _rounded(self, row: Expr, unit: Expr) -> Expr:
        """Return the hidden state as bytes would hold it."""
        return self.run.states[ROUNDED][row * self.run.tensors.form.hidden + unit]

    def _at(self, turn: Expr, row: Expr, unit: Expr) -> Expr:
        """Return the place of a hidden unit of a sequence among the states."""
        return turn + row * self.run.tensors.form.hidden + unit

    def _elements(self) -> Iterator[tuple[Expr, Expr]]:
        """Write the unrolled loops over the sequences and units of the tile."""
        with T.unroll(number(0), number(self.run.knobs.rows)) as row:
            for lane in self._lanes():
                yield row, lane

    def _lanes(self) -> Iterator[Expr]:
        return vectors(self.run.knobs.width, unroll=True)


def vectors(width: int, *, unroll: bool = False) -> Iterator[Expr]:
    """Write loops over the units of a tile, as vectors of powers of two.

    None is longer than a register: of longer ones LLVM keeps too few in registers at once.
    """
    largest = min(1 << (width.bit_length() - 1), _LANES)
    return elements(width, largest, number, unroll=unroll)
