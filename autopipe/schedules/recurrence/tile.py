"""Writes the body of a tile of a recurrent layer: some hidden units of some sequences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.recurrence.cells import Write
from autopipe.compiler.recurrence.plain import BLOCK, Tensors, Unit, make_index, make_loop
from autopipe.compiler.recurrence.rounding import dequantize_products
from autopipe.schedules.analysis.blocks import Extent, element_bits
from autopipe.schedules.analysis.dot_products import find_instruction
from autopipe.schedules.analysis.expressions import find_block_start, write_element_loops
from autopipe.schedules.divisors import floor_power, list_divisors
from autopipe.schedules.recurrence import functions
from autopipe.schedules.recurrence.blocking import BYTES, UnitBlocking
from autopipe.schedules.recurrence.packing import PackedGates
from autopipe.schedules.tiling.fetching import count_line_elements, prefetch_read

STATE_BYTES: Final = "bytes"
"""The state of a step as uint8."""
BYTE_SUMS: Final = "byte_sums"
"""The sum of this uint8 state for each sequence."""
RANGE: Final = "range"
"""The minimum and maximum state of a step."""
SPAN: Final = "span"
"""Scale and zero point of the uint8 state."""
_ROUNDED: Final = frozenset({STATE_BYTES, BYTE_SUMS, RANGE, SPAN})

_LANES: Final = 16
"""Maximum hidden units in a vector: those of 512-bit registers."""

_UNROLL: Final = 4
"""Maximum unrolled terms of a sum."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction of a layer over some sequences: the parameters of its loops."""

    tensors: Tensors
    packed: Sequence[PackedGates]
    knobs: UnitBlocking
    direction: int
    first: Expr
    """Its first sequence."""
    rows: Extent
    """Number of its sequences."""
    states: Mapping[str, Any]
    fast: bool
    """Whether elementary functions may round differently from libm's."""


@dataclass(frozen=True, slots=True)
class UnitTile:
    """Some hidden units of some sequences, in one phase of a step."""

    run: Pass
    copy: PackedGates
    step: Expr
    turns: tuple[Expr, Expr]
    """Offsets of the states of the previous step, and of those that this step writes."""
    tile: Expr
    row: Expr
    """The first sequence, among those of the job."""
    written: frozenset[str]
    """States that this step has written."""

    def write(self) -> None:
        """Write the sums of the gates, then the states computed from them."""
        knobs, phase = self.run.knobs, self.copy.phase
        with T.sblock(f"{BLOCK}_tile"):
            T.reads()
            T.writes()
            shape = (len(phase.gates), knobs.rows, knobs.width)
            gate_sums = T.sblock_alloc_buffer(shape, self.run.tensors.form.dtype, scope="local")
            for group in range(len(phase.gates) // self.copy.gates):
                self._write_gate_sums(group, gate_sums)
            written_states = set(self.written)
            for write in phase.writes:
                with make_loop(knobs.rows) as row:
                    for lane in write_vector_loops(knobs.width):
                        self._write_state(write, row, lane, gate_sums, frozenset(written_states))
                written_states.add(write.target)

    def _write_gate_sums(self, group: int, gate_sums: tvm.ir.Var) -> None:
        """Write the sums of some gates, in registers, and store them to `gate_sums`."""
        run, copy, knobs = self.run, self.copy, self.run.knobs
        gates = [copy.phase.gates[group * copy.gates + at] for at in range(copy.gates)]
        shape = (knobs.rows, copy.gates, knobs.width)
        dtype = "int32" if run.tensors.form.rounded else run.tensors.form.dtype
        sums = T.sblock_alloc_buffer(shape, dtype, scope="local")
        if not run.tensors.form.idle:
            self._prefetch_inputs(gates)
        for at in range(copy.gates):
            for row, lane in self._write_element_loops():
                T.buffer_store(sums, tirx.const(0, dtype), [row, make_index(at), lane])
        if not run.tensors.form.idle:
            self._accumulate_gates(group, sums)
        for at, gate in enumerate(gates):
            for row, lane in self._write_element_loops():
                scope = self._build_unit(row, lane, {}, self.written)
                total = sums[row, make_index(at), lane]
                if run.tensors.form.rounded:
                    quantization = run.states[SPAN], run.states[BYTE_SUMS][self.row + row]
                    column = run.tensors.counts(run.direction, gate, scope.unit)
                    total = dequantize_products(total, quantization, column)
                place = [make_index(group * copy.gates + at), row, lane]
                T.buffer_store(gate_sums, scope.start(copy.phase, gate) + total, place)

    def _prefetch_inputs(self, gates: Sequence[int]) -> None:
        """Prefetch the input projections of some gates while products are added.

        They are larger than a cache, and each element is read once.
        """
        line = count_line_elements(element_bits(self.run.tensors.form.dtype))
        for gate in gates:
            with T.unroll(make_index(0), make_index(self.run.knobs.rows)) as row:
                for unit in range(0, self.run.knobs.width, line):
                    scope = self._build_unit(row, make_index(unit), {}, self.written)
                    prefetch_read(scope.entry(gate))

    def _accumulate_gates(self, group: int, sums: tvm.ir.Var) -> None:
        """Add the products of a state and the weights of some gates to their sums."""
        knobs, form = self.run.knobs, self.run.tensors.form
        terms = form.hidden // self.copy.joined
        unroll = max(list_divisors(terms, _UNROLL))
        count = make_index(terms // unroll)
        if form.resting:
            count = tirx.Select(self.step > 0, count, make_index(0))
        with (
            T.serial(make_index(0), count) as outer,
            T.unroll(make_index(0), make_index(unroll)) as inner,
            T.unroll(make_index(0), make_index(knobs.rows)) as row,
        ):
            term = (outer * unroll + inner) * self.copy.joined
            for at in range(self.copy.gates):
                if knobs.instruction:
                    self._add_dots(group, sums, row, term, at)
                else:
                    self._add_products(group, sums, row, term, at)

    def _add_products(self, group: int, sums: tvm.ir.Var, row: Expr, term: Expr, at: int) -> None:
        """Add one term to the sums of a gate."""
        run, copy, form = self.run, self.copy, self.run.tensors.form
        source = (
            self._bytes
            if form.rounded
            else self._make_state_reader(copy.phase.source, self.written)
        )
        dtype = sums.ty.dtype
        for lane in self._write_lane_loops():
            place = copy.place(make_index(group), term, make_index(at), lane)
            weight = copy.buffer[make_index(run.direction), self.tile, place].astype(dtype)
            product = source(self.row + row, term).astype(dtype) * weight
            value = sums[row, make_index(at), lane] + product
            T.buffer_store(sums, value, [row, make_index(at), lane])

    def _add_dots(self, group: int, sums: tvm.ir.Var, row: Expr, term: Expr, at: int) -> None:
        """Add the terms of a dot-product instruction to the sums of a gate, vector by vector."""
        run, copy, knobs = self.run, self.copy, self.run.knobs
        dot = find_instruction(knobs.instruction, knobs.lanes, BYTES)
        state_index = tirx.Ramp(
            (self.row + row) * run.tensors.form.hidden + term, make_index(1), dot.group
        )
        state_bits = tirx.reinterpret("int32", run.states[STATE_BYTES][state_index])
        for first_lane in range(0, knobs.width, dot.lanes):
            lane = tirx.Ramp(make_index(first_lane), make_index(1), dot.lanes)
            start = copy.place(make_index(group), term, make_index(at), make_index(first_lane))
            place = tirx.Ramp(start, make_index(1), dot.lanes * dot.group)
            weights = copy.buffer[make_index(run.direction), self.tile, place]
            value = dot.added(sums[row, make_index(at), lane], state_bits, weights)
            T.buffer_store(sums, value, [row, make_index(at), lane])

    def _write_state(
        self,
        write: Write,
        row: Expr,
        lane: Expr,
        gate_sums: tvm.ir.Var,
        written_states: frozenset[str],
    ) -> None:
        """Write a state of a hidden unit, and the output, which is the hidden state."""
        run, tensors, target = self.run, self.run.tensors, self.run.states[write.target]
        totals = {
            gate: gate_sums[make_index(at), row, lane]
            for at, gate in enumerate(self.copy.phase.gates)
        }
        scope = self._build_unit(row, lane, totals, written_states)
        value = self._bind_states(write.value(scope))
        place = self._compute_state_index(self.turns[1], row + self.row, scope.unit)
        if run.fast:
            value = functions.inline_activations(value)
        if write.target in tensors.form.states:
            old = target[self._compute_state_index(self.turns[0], row + self.row, scope.unit)]
            value = tensors.held(self.step, scope.row, value, old)
        T.buffer_store(target, value, [place])
        if write.target == "h":
            zero = tirx.const(0, tensors.form.dtype)
            output = tensors.held(self.step, scope.row, target[place], zero)
            way = make_index(run.direction)
            at = tensors.place(run.direction, self.step, scope.row)
            T.buffer_store(tensors["y"], output, [at, way, scope.row, scope.unit])

    def _build_unit(
        self, row: Expr, lane: Expr, totals: Mapping[int, Expr], written_states: frozenset[str]
    ) -> Unit:
        run = self.run
        unit = find_block_start(self.tile, run.knobs.width, run.tensors.form.hidden) + lane
        names = [name for name in run.states if name not in _ROUNDED]
        states = {
            name: self._make_state_reader(name, written_states)(self.row + row, unit)
            for name in names
        }
        at = run.first + self.row + row
        return Unit(run.tensors, run.direction, self.step, at, unit, totals, states)

    def _make_state_reader(
        self, name: str, written_states: frozenset[str]
    ) -> Callable[[Expr, Expr], Expr]:
        """Return a reader of a state: of this step if already written, else of the previous one."""
        turn = self.turns[name in written_states]
        return lambda row, unit: self.run.states[name][self._compute_state_index(turn, row, unit)]

    def _bind_states(self, value: Expr) -> Expr:
        """Bind the loads of states in bodies of `Let` to variables in preceding statements.

        TVM's common-subexpression elimination replaces an index in such a body, but does not count
        it there, so that it defines its variable at the next use outside of one:

            h[9] = Let(z * h[i + 1], z=...)             h[9] = Let(z * h[cse], z=...)
            y[i + 1] = h[9]                  becomes    cse = i + 1
            ... y[i + 1] ...                            y[cse] = h[9]
        """
        states = self.run.states.values()

        def bind(load: TensorLoad) -> Expr:
            return T.Bind(load) if is_among(load.source, states) else load

        def bind_in_body(let: tirx.Let) -> Expr:
            body = tvm_ffi.structural_map(let.body, (TensorLoad, bind))
            return tirx.Let(let.var, let.value, body)

        return tvm_ffi.structural_map(value, (tirx.Let, bind_in_body))

    def _bytes(self, row: Expr, unit: Expr) -> Expr:
        """Return the hidden state as uint8."""
        return self.run.states[STATE_BYTES][row * self.run.tensors.form.hidden + unit]

    def _compute_state_index(self, turn: Expr, row: Expr, unit: Expr) -> Expr:
        """Return the offset of a hidden unit of a sequence among the states."""
        return turn + row * self.run.tensors.form.hidden + unit

    def _write_element_loops(self) -> Iterator[tuple[Expr, Expr]]:
        """Write the unrolled loops over the sequences and units of the tile."""
        with T.unroll(make_index(0), make_index(self.run.knobs.rows)) as row:
            for lane in self._write_lane_loops():
                yield row, lane

    def _write_lane_loops(self) -> Iterator[Expr]:
        return write_vector_loops(self.run.knobs.width, unroll=True)


def write_vector_loops(width: int, *, unroll: bool = False) -> Iterator[Expr]:
    """Write loops over the units of a tile, as vectors of powers of two.

    None is longer than a register: of longer vectors LLVM keeps too few in registers.
    """
    largest = min(floor_power(width), _LANES)
    return write_element_loops(width, largest, "int64", unroll=unroll)
