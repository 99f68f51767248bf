"""The reference loops of a recurrent layer: one step after the other."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock, SBlockRealize
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.recurrence.cells import Phase, list_phases
from autopipe.compiler.recurrence.form import ATTRIBUTE, COUNTS, Recurrence
from autopipe.compiler.recurrence.rounding import (
    as_byte,
    compute_scale,
    compute_zero_point,
    dequantize_products,
)

BLOCK: Final = "recurrence"
"""Name of the block of all steps."""

_OPAQUE: Final = 8
"""TVM's pattern kind of a function that fuses with nothing."""

_BY_STEP: Final = ("x", "y")
"""Tensors with a row for each step."""


def make_index(value: int) -> Expr:
    """Build an index constant."""
    return tirx.const(value, "int64")


def make_loop(extent: int | Expr) -> AbstractContextManager[Expr]:
    """Open a serial loop from 0."""
    return T.serial(make_index(0), make_index(extent) if isinstance(extent, int) else extent)


@dataclass(frozen=True, slots=True)
class Tensors:
    """The buffers of a layer by name: its inputs, then its outputs."""

    form: Recurrence
    by_name: Mapping[str, tirx.Var]

    @classmethod
    def of(cls, form: Recurrence) -> "Tensors":
        """Declare the buffers of a form."""
        shapes = form.inputs | {name: (shape, form.dtype) for name, shape in form.outputs.items()}
        sizes = (
            make_index(form.steps) if form.steps else tirx.Var("steps", "int64"),
            make_index(form.batch) if form.batch else tirx.Var("batch", "int64"),
        )
        return cls(
            form,
            {
                name: tirx.decl_buffer(fill_shape(name, shape, sizes), dtype, name)
                for name, (shape, dtype) in shapes.items()
            },
        )

    @property
    def steps(self) -> Expr:
        """Return the number of steps."""
        return self["x"].ty.shape[0]

    @property
    def batch(self) -> Expr:
        """Return the number of sequences."""
        return self["x"].ty.shape[1]

    def __getitem__(self, name: str) -> tirx.Var:
        """Return a buffer."""
        return self.by_name[name]

    def column(self, direction: int, gate: int, unit: Expr) -> Expr:
        """Return the input column of a gate of a hidden unit."""
        form = self.form
        return make_index((direction * form.gates + gate) * form.hidden) + unit

    def counts(self, direction: int, gate: int, unit: Expr) -> tuple[Expr, Expr, Expr]:
        """Return scale, zero point and sum of a column of int8 weights."""
        column = make_index(gate * self.form.hidden) + unit
        scale, zero, total = (self[name][direction, column] for name in ("scale", *COUNTS))
        return scale, zero, total

    def length(self, row: Expr) -> Expr:
        """Return the length of a sequence, clamped to the number of steps."""
        length = self["lengths"][row].astype("int64")
        return tirx.max(tirx.min(length, self.steps), make_index(0))

    def place(self, direction: int, step: Expr, row: Expr) -> Expr:
        """Return the position in a sequence that a step processes."""
        form = self.form
        if not form.directions[direction].reverse:
            return step
        if not form.lengths:
            return self.steps - 1 - step
        length = self.length(row)
        return tirx.Select(step < length, length - 1 - step, step)

    def first(self, direction: int, name: str, row: Expr, unit: Expr) -> Expr:
        """Return the initial value of a state."""
        if self.form.initial:
            return self[name][direction, row, unit]
        return tirx.const(0, self.form.dtype)

    def held(self, step: Expr, row: Expr, new: Expr, old: Expr) -> Expr:
        """Select the new value, or the old one after the end of the sequence."""
        if not self.form.lengths:
            return new
        return tirx.Select(step < self.length(row), new, old)

    def heard(self, step: Expr, row: Expr, value: Expr) -> Expr:
        """Return a state for the quantization range: zero after the end of the sequence."""
        if not self.form.lengths:
            return value
        return tirx.Select(step <= self.length(row), value, tirx.const(0, self.form.dtype))

    def last(self, row: Expr, value: Expr) -> Expr:
        """Return the final value of a state: zero for a sequence without steps."""
        if not self.form.lengths:
            return value
        return tirx.Select(self.length(row) > 0, value, tirx.const(0, self.form.dtype))


def fill_shape(name: str, shape: Sequence[int], sizes: tuple[Expr, Expr]) -> list[int | Expr]:
    """Return the shape of an input or output, with steps and batch for dynamic sizes."""
    steps, batch = sizes
    return [
        make_index(size) if size else steps if name in _BY_STEP and not axis else batch
        for axis, size in enumerate(shape)
    ]


@dataclass(slots=True)
class Unit:
    """One hidden unit of one sequence in one step: the scope of a cell."""

    tensors: Tensors
    direction: int
    step: Expr
    row: Expr
    unit: Expr
    totals: Mapping[int, Expr]
    """The sum of each gate."""
    states: Mapping[str, Expr]

    def total(self, gate: int) -> Expr:
        """Return the sum of a gate."""
        return self.totals[gate]

    def entry(self, gate: int) -> Expr:
        """Return the contribution of the input to a gate."""
        tensors = self.tensors
        column = tensors.column(self.direction, gate, self.unit)
        return tensors["x"][tensors.place(self.direction, self.step, self.row), self.row, column]

    def start(self, phase: Phase, gate: int) -> Expr:
        """Return the initial value of the sum of a gate."""
        if gate in phase.without:
            return self.tensors["bias"][self.direction, self.unit]
        return self.entry(gate)

    def state(self, name: str) -> Expr:
        """Return a state."""
        return self.states[name]

    def peephole(self, gate: int) -> Expr:
        """Return the weight between the cell and a gate."""
        return self.tensors["p"][
            self.direction, make_index(gate * self.tensors.form.hidden) + self.unit
        ]


def build_loops(form: Recurrence) -> tirx.PrimFunc:
    """Build the PrimFunc of a form, which takes its inputs, then its outputs."""
    tensors = Tensors.of(form)
    with IRBuilder() as builder, T.sblock(BLOCK):
        T.reads(*(_slice_buffer(tensors[name]) for name in form.inputs))
        T.writes(*(_slice_buffer(tensors[name]) for name in form.outputs))
        for direction in range(len(form.directions)):
            _Loops(tensors, direction).write()
    return make_prim_func(tensors, builder.get())


def make_prim_func(tensors: Tensors, body: tirx.Stmt) -> tirx.PrimFunc:
    """Build a PrimFunc of the buffers with a body."""
    root = SBlock([], [], [], "root", body)
    realize = SBlockRealize([], tirx.const(True, "bool"), root)  # noqa: FBT003 - TVM's signature
    function = tirx.PrimFunc(list(tensors.by_name.values()), realize)
    return function.with_attr(
        {
            "tirx.noalias": True,
            "s_tir": True,
            "op_pattern": _OPAQUE,
            ATTRIBUTE: tensors.form.model_dump_json(),
        }
    )


class _Loops:
    """The loops of one direction, states in buffers of their own."""

    def __init__(self, tensors: Tensors, direction: int) -> None:
        self._tensors, self._direction, self._form = tensors, direction, tensors.form
        form = self._form
        names = {write.target for phase in list_phases(form, direction) for write in phase.writes}
        shape = (tensors.batch, form.hidden)
        self._states = {name: T.sblock_alloc_buffer(shape, form.dtype) for name in sorted(names)}
        gates = (tensors.batch, form.gates, form.hidden)
        self._sums = T.sblock_alloc_buffer(gates, form.dtype)
        if form.rounded:
            self._bytes = T.sblock_alloc_buffer(shape, "uint8")
            self._byte_sums = T.sblock_alloc_buffer((tensors.batch,), "int32")
            self._products = T.sblock_alloc_buffer(gates, "int32")
            self._range = T.sblock_alloc_buffer((2,), form.dtype)
            self._span = T.sblock_alloc_buffer((2,), form.dtype)

    def write(self) -> None:
        """Write the loops."""
        tensors, form, direction = self._tensors, self._form, self._direction
        for name in form.states:
            with self._loop_over_units() as (row, unit):
                first = tensors.first(direction, name, row, unit)
                T.buffer_store(self._states[name], first, [row, unit])
        with make_loop(tensors.steps) as step:
            if form.rounded:
                self._round_state(step)
            for phase in list_phases(form, direction):
                self._multiply_weights(phase, step)
                self._write_states(phase, step)
            with self._loop_over_units() as (row, unit):
                zero = tirx.const(0, form.dtype)
                hidden_state = tensors.held(step, row, self._states["h"][row, unit], zero)
                place = tensors.place(direction, step, row)
                T.buffer_store(tensors["y"], hidden_state, [place, direction, row, unit])
        for name in form.states:
            with self._loop_over_units() as (row, unit):
                value = tensors.last(row, self._states[name][row, unit])
                T.buffer_store(tensors[f"last_{name}"], value, [direction, row, unit])

    def _round_state(self, step: Expr) -> None:
        """Quantize the state to uint8, with one range for all sequences."""
        tensors, state, ends, span = self._tensors, self._states["h"], self._range, self._span
        none = tirx.const(0, self._form.dtype)
        for end in range(2):
            T.buffer_store(ends, none, [end])
        with self._loop_over_units() as (row, unit):
            value = tensors.heard(step, row, state[row, unit])
            T.buffer_store(ends, tirx.min(ends[0], value), [0])
            T.buffer_store(ends, tirx.max(ends[1], value), [1])
        T.buffer_store(span, compute_scale(ends[0], ends[1]), [0])
        T.buffer_store(span, compute_zero_point(ends[0], span[0]), [1])
        with make_loop(tensors.batch) as row:
            T.buffer_store(self._byte_sums, tirx.const(0), [row])
        with self._loop_over_units() as (row, unit):
            T.buffer_store(self._bytes, as_byte(state[row, unit], span[0], span[1]), [row, unit])
            total = self._byte_sums[row] + self._bytes[row, unit].astype("int32")
            T.buffer_store(self._byte_sums, total, [row])

    def _multiply_weights(self, phase: Phase, step: Expr) -> None:
        form = self._form
        source = self._bytes if form.rounded else self._states[phase.source]
        sums = self._products if form.rounded else self._sums
        for gate in phase.gates:
            with self._loop_over_units() as (row, unit):
                start = self._make_unit(step, row, unit).start(phase, gate)
                T.buffer_store(self._sums, start, [row, gate, unit])
                if form.rounded:
                    T.buffer_store(sums, tirx.const(0), [row, gate, unit])
            if form.idle:
                continue
            terms = tirx.Select(step > 0, make_index(form.hidden), make_index(0))
            with (
                make_loop(self._tensors.batch) as at_row,
                T.serial(
                    make_index(0), terms if form.resting else make_index(form.hidden)
                ) as at_term,
                make_loop(form.hidden) as at_unit,
                T.sblock(f"sum_{self._direction}_{gate}"),
            ):
                row, term, unit = T.axis.remap("SRS", [at_row, at_term, at_unit], dtype="int64")
                column = make_index(gate * form.hidden) + unit
                weight = self._tensors["r"][self._direction, term, column]
                T.reads(source[row, term], weight)
                T.writes(sums[row, gate, unit])
                dtype = sums.ty.dtype
                product = source[row, term].astype(dtype) * weight.astype(dtype)
                T.buffer_store(sums, sums[row, gate, unit] + product, [row, gate, unit])
            if form.rounded:
                with self._loop_over_units() as (row, unit):
                    total = self._sums[row, gate, unit] + dequantize_products(
                        sums[row, gate, unit],
                        (self._span, self._byte_sums[row]),
                        self._tensors.counts(self._direction, gate, unit),
                    )
                    T.buffer_store(self._sums, total, [row, gate, unit])

    def _write_states(self, phase: Phase, step: Expr) -> None:
        for write in phase.writes:
            with self._loop_over_units() as (row, unit):
                value = write.value(self._make_unit(step, row, unit))
                if write.target in self._form.states:
                    old = self._states[write.target][row, unit]
                    value = self._tensors.held(step, row, value, old)
                T.buffer_store(self._states[write.target], value, [row, unit])

    def _make_unit(self, step: Expr, row: Expr, unit: Expr) -> Unit:
        totals = {gate: self._sums[row, gate, unit] for gate in range(self._form.gates)}
        states = {name: buffer[row, unit] for name, buffer in self._states.items()}
        return Unit(self._tensors, self._direction, step, row, unit, totals, states)

    @contextmanager
    def _loop_over_units(self) -> Iterator[Sequence[Expr]]:
        """Write the loops over all hidden units of all sequences."""
        with make_loop(self._tensors.batch) as row, make_loop(self._form.hidden) as unit:
            yield row, unit


def _slice_buffer(buffer: tvm.ir.Var) -> Expr:
    return buffer[tuple(slice(0, extent) for extent in buffer.ty.shape)]
