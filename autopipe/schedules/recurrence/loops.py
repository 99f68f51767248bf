"""Writes the loops of a recurrent layer for a setting of the knobs, as new TIR."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.recurrence.cells import list_phases
from autopipe.compiler.recurrence.plain import BLOCK, Tensors, make_index, make_loop
from autopipe.compiler.recurrence.rounding import as_byte, compute_scale, compute_zero_point
from autopipe.schedules.analysis.blocks import Extent, extent_of, is_large_enough, parts_of
from autopipe.schedules.analysis.expressions import find_block_start, to_full_region, write_branches
from autopipe.schedules.parallel_work import STEP_PRODUCTS
from autopipe.schedules.recurrence.blocking import APART, SERIAL, TOGETHER, UnitBlocking
from autopipe.schedules.recurrence.packing import PackedGates
from autopipe.schedules.recurrence.tile import (
    BYTE_SUMS,
    RANGE,
    SPAN,
    STATE_BYTES,
    Pass,
    UnitTile,
    write_vector_loops,
)

_LAUNCH: Final = "pragma_parallel_launch_point"
"""TVM's mark of a region that every thread executes, sharing only its parallel loops."""
_WAIT: Final = "pragma_parallel_barrier_when_finish"
"""TVM's mark of a region with a barrier at its end."""


def build_layer_loops(
    tensors: Tensors, packed_gates: Sequence[PackedGates], knobs: UnitBlocking, *, fast: bool
) -> tirx.Stmt:
    """Build the loops over all steps.

    `fast` tells whether elementary functions may round differently from libm's.
    """
    with IRBuilder() as builder:
        for fit in _write_size_branches(tensors, knobs):
            _write_job_loop(tensors, packed_gates, fit, fast=fast)
    return builder.get()


def _write_size_branches(tensors: Tensors, knobs: UnitBlocking) -> Iterator[UnitBlocking]:
    """Write the branches of a layer with dynamic shapes; yield the knobs of each.

    Threads are used only for a minimum of work, and tiles have one sequence where the batch is
    smaller than a tile.
    """
    form, batch = tensors.form, extent_of(tensors.batch)
    work = (form.hidden * form.columns, batch, extent_of(tensors.steps))
    is_large = not form.is_open or knobs.threads != APART or is_large_enough(work, STEP_PRODUCTS)
    for pays in write_branches(is_large):
        branch_knobs = knobs if pays else replace(knobs, threads=SERIAL)
        rows = branch_knobs.share(batch)
        fits = isinstance(rows, int) or branch_knobs.rows == 1 or rows >= branch_knobs.rows
        for whole_tile in write_branches(fits):
            yield branch_knobs if whole_tile else replace(branch_knobs, rows=1)


def _write_job_loop(
    tensors: Tensors, packed_gates: Sequence[PackedGates], knobs: UnitBlocking, *, fast: bool
) -> None:
    """Write the loop over directions and parts of the batch."""
    form, batch = tensors.form, extent_of(tensors.batch)
    read = [tensors[name] for name in form.inputs if name != "r"]
    read += [] if form.idle else [packed_gates[0].buffer]
    ways, rows = len(form.directions), knobs.share(batch)
    with _choose_job_loop(knobs, ways * knobs.parts) as job, T.sblock(BLOCK):
        T.reads(*map(to_full_region, read))
        T.writes(*(to_full_region(tensors[name]) for name in form.outputs))
        states = _allocate_states(tensors, rows)
        with _write_direction_loop(knobs, job, ways) as way:
            for direction in range(ways):
                first = find_block_start(job % knobs.parts, rows, batch)
                run = _WrittenPass(
                    tensors, packed_gates, knobs, direction, first, rows, states, fast
                )
                if ways == 1:
                    run.write()
                else:
                    with T.If(way == direction), T.Then():
                        run.write()


def _choose_job_loop(knobs: UnitBlocking, jobs: int) -> Any:  # noqa: ANN401 - a frame of TVM's builder
    """Return the loop over directions and parts of the batch; one iteration for TOGETHER."""
    if knobs.threads == TOGETHER:
        return make_loop(1)
    return (T.parallel if knobs.threads == APART else T.serial)(make_index(0), make_index(jobs))


@contextmanager
def _write_direction_loop(knobs: UnitBlocking, job: Expr, ways: int) -> Iterator[Expr]:
    """Yield the direction of a job; for TOGETHER, launch the threads and loop over directions."""
    if knobs.threads != TOGETHER:
        yield job // knobs.parts
        return
    with T.attr(tirx.const(0), _LAUNCH, 1), make_loop(ways) as way:
        yield way


def _allocate_states(tensors: Tensors, rows: Extent) -> dict[str, Any]:
    """Allocate the buffers of states: two alternating copies of [sequences, units]."""
    form = tensors.form
    names = {write.target for phase in list_phases(form, 0) for write in phase.writes}
    sizes = dict.fromkeys(sorted(names), 2 * rows * form.hidden)
    dtypes = {STATE_BYTES: "uint8", BYTE_SUMS: "int32"}
    if form.rounded:
        sizes |= {STATE_BYTES: rows * form.hidden, BYTE_SUMS: rows, RANGE: 2, SPAN: 2}
    return {
        name: T.sblock_alloc_buffer((size,), dtypes.get(name, form.dtype))
        for name, size in sizes.items()
    }


@dataclass(frozen=True, slots=True)
class _WrittenPass(Pass):
    """The loops of one direction, over some sequences."""

    def write(self) -> None:
        """Write the loops."""
        form, tensors, way = self.tensors.form, self.tensors, self.direction
        size = self.rows * form.hidden
        with self._write_tile_loop() as tile:
            for name in form.states:
                for row, unit in self._write_unit_loops(tile):
                    start = tensors.first(way, name, self.first + row, unit)
                    T.buffer_store(self.states[name], start, [row * form.hidden + unit])
        with make_loop(tensors.steps) as step:
            # bound here: TVM's CSE would define the product in a scope that not all uses share
            turns = T.Bind(step % 2 * size), T.Bind((step + 1) % 2 * size)
            if form.rounded:
                with self._run_on_one_thread():
                    self._quantize_state(step, turns[0])
            written_states: set[str] = set()
            for copy in self.packed:
                with self._write_tile_loop(step) as tile, make_loop(self._blocks) as block:
                    row = find_block_start(block, self.knobs.rows, self.rows)
                    UnitTile(self, copy, step, turns, tile, row, frozenset(written_states)).write()
                written_states.update(write.target for write in copy.phase.writes)
        end = form.steps % 2 * size if form.steps else T.Bind(tensors.steps % 2 * size)
        with self._write_tile_loop() as tile:
            for name in form.states:
                for row, unit in self._write_unit_loops(tile):
                    at = self.first + row
                    value = self.states[name][end + row * form.hidden + unit]
                    value = tensors.last(at, value)
                    T.buffer_store(tensors[f"last_{name}"], value, [make_index(way), at, unit])

    def _quantize_state(self, step: Expr, turn: Expr) -> None:
        """Quantize the state to uint8, with one scale for all sequences."""
        form, state, ends = self.tensors.form, self.states["h"], self.states[RANGE]
        span, bytes_, sums = (self.states[name] for name in (SPAN, STATE_BYTES, BYTE_SUMS))
        for end in range(2):
            T.buffer_store(ends, tirx.const(0, form.dtype), [end])
        with make_loop(self.rows) as row, make_loop(form.hidden) as unit:
            value = self.tensors.heard(
                step, self.first + row, state[turn + row * form.hidden + unit]
            )
            T.buffer_store(ends, tirx.min(ends[0], value), [0])
            T.buffer_store(ends, tirx.max(ends[1], value), [1])
        T.buffer_store(span, compute_scale(ends[0], ends[1]), [0])
        T.buffer_store(span, compute_zero_point(ends[0], span[0]), [1])
        with make_loop(self._tiles) as tile:
            for row, unit in self._write_unit_loops(tile):
                at = row * form.hidden + unit
                T.buffer_store(bytes_, as_byte(state[turn + at], span[0], span[1]), [at])
        with make_loop(self.rows) as row:
            T.buffer_store(sums, tirx.const(0), [row])
            with make_loop(form.hidden) as unit:
                byte = bytes_[row * form.hidden + unit].astype("int32")
                T.buffer_store(sums, sums[row] + byte, [row])

    @contextmanager
    def _run_on_one_thread(self) -> Iterator[None]:
        """Write a region that one thread executes, with a barrier after it, for TOGETHER."""
        with ExitStack() as frames:
            if self.knobs.threads == TOGETHER:
                frames.enter_context(T.attr(tirx.const(0), _WAIT, 1))
                threads = T.parallel(make_index(0), make_index(self.knobs.parts))
                frames.enter_context(T.If(frames.enter_context(threads) == 0))
                frames.enter_context(T.Then())
            yield

    @property
    def _tiles(self) -> int:
        return ceil(self.tensors.form.hidden / self.knobs.width)

    @property
    def _blocks(self) -> Extent:
        return parts_of(self.rows, self.knobs.rows)

    @contextmanager
    def _write_tile_loop(self, step: Expr | None = None) -> Iterator[Expr]:
        """Write the loop over the tiles, which is parallel for TOGETHER.

        Every other step runs in reverse order: it begins with the weights that the previous step
        has read last, which are still cached. Order of tiles 0 to 3 with two threads:

            step 0: 0 1 | 2 3    step 1: 1 0 | 3 2    step 2: 0 1 | 2 3
        """
        threads = self.knobs.parts if self.knobs.threads == TOGETHER else 1
        share = ceil(self._tiles / threads)
        with ExitStack() as frames:
            start = make_index(0)
            if threads > 1:
                frames.enter_context(T.attr(tirx.const(0), _WAIT, 1))
                start = frames.enter_context(T.parallel(make_index(0), make_index(threads))) * share
            turn = frames.enter_context(make_loop(share))
            if step is not None and share > 1:
                turn = tirx.Select(step % 2 == 0, turn, make_index(share - 1) - turn)
            tile = T.Bind(start + turn)
            if threads * share > self._tiles:
                frames.enter_context(T.If(tile < make_index(self._tiles)))
                frames.enter_context(T.Then())
            yield tile

    def _write_unit_loops(self, tile: Expr) -> Iterator[tuple[Expr, Expr]]:
        """Write the loops over all sequences and the units of a tile."""
        width = self.knobs.width
        with make_loop(self.rows) as row:
            for lane in write_vector_loops(width):
                yield row, find_block_start(tile, width, self.tensors.form.hidden) + lane
