"""Template for hand-written loops: TVM's prefix sums, scatters and searches.

A step of a prefix sum depends on the step before it. Where rows or columns are independent of each
other, several are summed side by side: contiguous ones in vectors, others in chains. A loop runs in
parallel where that pays, which is not so for all loops that TVM made parallel.

Example: the sums of each column of [512, 300] down to a row, 32 columns at a time.

    for j in parallel(300):                               # before
        out[0, j] = x[0, j]
        for k in range(511):
            out[k + 1, j] = out[k, j] + x[k + 1, j]

    for tile in parallel(9):                              # after; then the 12 columns that are left
        out[0, 32 * tile : 32 * tile + 32] = x[0, ...]
        for k in range(511):
            out[k + 1, 32 * tile : 32 * tile + 32] = out[k, ...] + x[k + 1, ...]
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import BufferStore, For, ForKind, SeqStmt, Stmt, Var, stmt_seq

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import bind_extents, number_of
from autopipe.schedules.analysis.expressions import replace_variables
from autopipe.schedules.analysis.hand_written import (
    HandNest,
    describe_nest,
    flatten_statements,
    is_hand_written,
)
from autopipe.schedules.guarded import replace_loop_kind
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import CYCLES, ELEMENTS
from autopipe.schedules.primitives import replace_block
from autopipe.schedules.templates.template import Template

_CHAINS: Final = 4
"""Steps, or vectors of steps, side by side that hide the latency of an addition."""


@dataclass(frozen=True, slots=True)
class HandWritten:
    """A function that the template serves."""

    statements: tuple[Stmt, ...]
    nests: tuple[HandNest | None, ...]
    """The analysis of each statement; None leaves it unscheduled."""


@dataclass(frozen=True, slots=True)
class StepsBeside:
    """The knobs."""

    count: int
    """Independent chains of a loop that are computed side by side; 1 leaves the loop."""
    width: int
    """Chains in a vector where they are contiguous in memory, a power of two."""
    threads: bool
    """Whether threads share the steps where there are many."""


class ByHandTemplate(Template[HandWritten, StepsBeside]):
    """Hand-written loops: prefix sums, scatters and searches."""

    name = "by_hand"
    version = schedule_version("by_hand")

    def match(self, sch: Schedule) -> HandWritten | None:
        """Match the function, or return None if the template does not apply."""
        rv = _find_only_block(sch)
        if rv is None or not is_hand_written(sch.get(rv)):
            return None
        parts = tuple(flatten_statements(sch.get(rv).body))
        nests = tuple(describe_nest(part) if isinstance(part, For) else None for part in parts)
        return HandWritten(parts, nests) if any(nests) else None

    def settings(self, match: HandWritten, hardware: HardwareParams) -> Iterator[StepsBeside]:
        """Yield steps one by one, in chains and in vectors, with and without threads."""
        waiting = [n for n in match.nests if n and n.carried and n.independent and n.extent > 1]
        lanes = hardware.lanes(max((nest.bits for nest in waiting), default=32))
        for threads in (True, False):
            yield StepsBeside(1, 1, threads)
            if any(not nest.beside for nest in waiting):
                for count in (2, _CHAINS, 2 * _CHAINS):
                    yield StepsBeside(count, 1, threads)
            if any(nest.beside for nest in waiting):
                for vectors in (1, 2, _CHAINS, 2 * _CHAINS):
                    yield StepsBeside(vectors * lanes, lanes, threads)

    def fill(self, match: HandWritten, hardware: HardwareParams) -> StepsBeside:
        """Return the knobs for a processor, without measuring."""

        def promise(knobs: StepsBeside) -> tuple[bool, int, float]:
            return knobs.threads, knobs.width, -abs(math.log2(knobs.count / knobs.width / _CHAINS))

        return max(self.settings(match, hardware), key=promise)

    def apply(self, sch: Schedule, match: HandWritten, knobs: StepsBeside) -> None:
        """Schedule the function."""
        total = sum(nest.work for nest in match.nests if nest and nest.independent)
        parts: list[Stmt] = []
        for statement, nest in zip(match.statements, match.nests, strict=True):
            is_long = nest is not None and nest.work >= ELEMENTS
            parallel = knobs.threads and total >= CYCLES and is_long
            parts += [statement] if nest is None else _schedule_nest(nest, knobs, parallel=parallel)
        if (rv := _find_only_block(sch)) is not None:
            replace_block(sch, rv, stmt_seq(*parts))


BY_HAND: Final = ByHandTemplate()


def _find_only_block(sch: Schedule) -> SBlockRV | None:
    """Find the only block of a function, which TVM does not put into a root block."""
    realize = sch.mod["main"].body
    if isinstance(realize, SBlockRealize) and isinstance(realize.block.body, SBlockRealize):
        realize = realize.block.body
    return sch.get_sblock(realize.block.name_hint) if isinstance(realize, SBlockRealize) else None


def _schedule_nest(nest: HandNest, knobs: StepsBeside, *, parallel: bool) -> list[Stmt]:
    """Schedule a loop nest: split it into chains, and run it in parallel if `parallel`."""
    parallel = parallel and nest.independent
    width = knobs.width if nest.beside else 1
    count = knobs.count if width > 1 else min(knobs.count, 2 * _CHAINS)
    if not (nest.carried and nest.independent) or count == 1 or nest.extent == 1:
        kind = ForKind.PARALLEL if parallel else ForKind.SERIAL
        return [replace_loop_kind(_make_serial(nest.loop), kind)]
    statements, step = [], 0
    while step < nest.extent:
        tiles = (nest.extent - step) // count
        if tiles:
            statements.append(
                _build_tile_loop(nest.loop, (step, tiles, count), width, parallel=parallel)
            )
        step += tiles * count
        count //= 2
        width = min(width, count)
    return statements


def _build_tile_loop(loop: For, split: tuple[int, int, int], width: int, *, parallel: bool) -> Stmt:
    """Build a loop over tiles; `split` is the first step, the number of tiles, and their steps."""
    first, tiles, count = split
    dtype = str(loop.loop_var.ty.dtype)
    tile = Var("tile", loop.loop_var.ty)
    side = _SideBySide(loop, tile * count + first, count, width, tile, tiles)
    kind = ForKind.PARALLEL if parallel and tiles > 1 else ForKind.SERIAL
    return For(tile, number_of(0, dtype), number_of(tiles, dtype), kind, side.of(loop.body, []))


@dataclass(frozen=True, slots=True)
class _SideBySide:
    """Writes `count` steps of a loop side by side, statement by statement."""

    loop: For
    first: Any
    count: int
    width: int
    tile: Var
    tiles: int

    def of(self, body: Stmt, around: Sequence[tuple[For, Var]]) -> Stmt:
        """Rewrite a statement; `around` are the loops in the step, with their new variables."""
        if isinstance(body, SeqStmt):
            return stmt_seq(*(self.of(part, around) for part in body.seq))
        if isinstance(body, For):
            loop_var = Var(body.loop_var.name, body.loop_var.ty)
            inside = self.of(body.body, [*around, (body, loop_var)])
            return For(loop_var, body.min, body.extent, ForKind.SERIAL, inside)
        assert isinstance(body, BufferStore)  # noqa: S101 - `match` takes no other statements
        return self._vectorize_store(body, around)

    def _vectorize_store(self, store: BufferStore, around: Sequence[tuple[For, Var]]) -> Stmt:
        kind = self.loop.loop_var.ty
        lane, part = Var("lane", kind), Var("part", kind)
        ranges = [(self.tile, self.tiles), (lane, self.width), (part, self.count // self.width)]
        analyzer = bind_extents([*ranges, *((own, int(old.extent)) for old, own in around)])
        step = self.first + part * self.width + lane
        values = [(self.loop.loop_var, step), *((old.loop_var, own) for old, own in around)]
        indices = [analyzer.simplify(replace_variables(index, values)) for index in store.indices]
        value = analyzer.simplify(replace_variables(store.value, values))
        statement: Stmt = BufferStore(store.buffer, value, indices)
        zero = number_of(0, str(kind.dtype))
        sides = ((lane, self.width, ForKind.VECTORIZED),
                 (part, self.count // self.width, ForKind.UNROLLED))  # fmt: skip
        for var, extent, how in sides:
            statement = For(var, zero, number_of(extent, str(kind.dtype)), how, statement)
        return statement


def _make_serial(loop: For) -> For:
    """Make a loop and the loops in it serial."""

    def to_serial(inner_loop: For) -> For:
        kind = ForKind.SERIAL if inner_loop.kind == ForKind.PARALLEL else inner_loop.kind
        return replace_loop_kind(inner_loop, kind)

    return tvm_ffi.structural_map(loop, (For, to_serial))
