"""Template for transposes of any sides, in blocks that are turned in registers.

It serves functions that read some tensor along one loop and write along another one, elementwise
ops around it included. A block is read in rows, as vectors; vectors are zipped with each other
until they hold columns, which are written. Where a side is no multiple of a block, the last block
begins so early that it is whole: what two blocks share is written twice, to the same bits.

Example: y[i, j] = x[j, i], with x of [66049, 21] floats, in blocks of 4 columns of 8 rows.

    for tile in parallel(4129):                           # two blocks of rows: lines of 64 bytes
        for p, q in grid(6, 2):
            i, j = min(4 * p, 17), min(16 * tile + 8 * q, 66041)
            for h in range(4):                            # unrolled: a vector of two rows
                r[h] = x[j + h, i : i + 4], x[j + 4 + h, i : i + 4]
            r = zip(r[0], r[2]), zip(r[1], r[3])          # in halves: a0 c0 a1 c1 | e0 g0 e1 g1
            r = zip(r[0], r[1]), zip(r[2], r[3])          #            a0 b0 c0 d0 | e0 f0 g0 h0
            for h in range(4):
                y[i + h, j : j + 8] = r[h]
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it
from tvm_ffi import structural_equal

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import substitute, unfold, whole
from autopipe.schedules.analysis.movement import combined, recognize
from autopipe.schedules.analysis.strides import StridedLoops, StridedRead, strided
from autopipe.schedules.cost import threads_pay
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.template import Template

_GROUP: Final = 128
"""Bits within which processors zip vectors at once; wider ones do so in groups."""

_LINE: Final = 512
"""Bits of a line of the caches."""

_LEAST: Final = 4
"""Steps along a side, at least, where elements have less than 64 bits."""

_ELEMENT, _BIT = 0.08, 0.0025
"""Nanoseconds for an element that is turned and for each of its bits, in the caches."""


@dataclass(frozen=True, slots=True)
class Turning:
    """A function that the template serves."""

    rows: int
    """Steps of the loop along which the output is written."""
    columns: int
    """Steps of the loop along which the tensor is read that is turned."""
    bits: int
    """Size of the largest element that is read or written."""
    elements: int
    """Of the output."""


@dataclass(frozen=True, slots=True)
class TurnedBlock:
    """The knobs."""

    width: int
    """Rows of a block, a vector of the output."""
    columns: int
    """Columns of a block, which are zipped in groups."""
    down: int
    """Blocks of a tile along the rows."""
    across: int
    """Blocks of a tile along the columns."""
    threads: bool = True
    """Whether threads share the tiles."""


class TurnedTemplate(Template[Turning, TurnedBlock]):
    """Transposes of any sides, block by block in registers, and what is fused with them."""

    name = "turned"
    version = schedule_version("turned")

    def match(self, sch: Schedule) -> Turning | None:
        """Return what the knobs depend on, or None if the function is for another template."""
        if recognize(sch) is None:
            return None
        trial = sch.copy()
        block = trial.get(combined(trial))
        loops = strided(block)
        crossed = _crossed(loops) if loops else None
        bits = _bits(block, loops) if loops else None
        if loops is None or crossed is None or bits is None:
            return None
        rows, columns = loops.extents[-1], loops.extents[crossed]
        if min(rows, columns) < min(_LEAST, _GROUP // bits):
            return None
        return Turning(rows, columns, bits, math.prod(loops.extents))

    def settings(self, match: Turning, hardware: HardwareParams) -> Iterator[TurnedBlock]:
        """Yield blocks of a vector and of a half, in tiles of one to eight lines."""
        group = _group(match)
        widths = {_width(match, hardware), group}
        for width in sorted(widths, reverse=True):
            downs = {
                _even(match.rows, width, lines * _LINE // match.bits) for lines in (1, 2, 4, 8)
            }
            acrosses = {
                _even(match.columns, group, lines * _LINE // match.bits) for lines in (1, 2, 4, 8)
            }
            for down in sorted(downs):
                for across in sorted(acrosses):
                    for threads in (True, False):
                        yield TurnedBlock(width, group, down, across, threads=threads)

    def fill(self, match: Turning, hardware: HardwareParams) -> TurnedBlock:
        """Return the knobs for a processor, without measuring."""
        group, width = _group(match), _width(match, hardware)
        down = _even(match.rows, width, 2 * _LINE // match.bits)
        across = _even(match.columns, group, 2 * _LINE // match.bits)
        nanoseconds = match.elements * (_ELEMENT + match.bits * _BIT)
        threads = threads_pay(nanoseconds, hardware.machine)
        return TurnedBlock(width, group, down, across, threads=threads)

    def apply(self, sch: Schedule, match: Turning, knobs: TurnedBlock) -> None:  # noqa: ARG002
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        block = sch.get(combined(sch))
        here = sch.get_sblock("root")
        loops = strided(block)
        crossed = _crossed(loops) if loops else None
        if loops is None or crossed is None:
            raise ScheduleError(f"{block.name_hint} does not move evenly")
        root = sch.get(here)
        body = _Writing(block, loops, crossed, knobs).statement()
        new = SBlock([], [], [], root.name_hint, body, annotations=root.annotations)
        sch.state.replace(sch.get_sref(here), new, {root: new})


TURNED: Final = TurnedTemplate()


def _group(match: Turning) -> int:
    """Return how many columns are turned at a time."""
    return min(_GROUP // match.bits, _power(min(match.rows, match.columns)))


def _width(match: Turning, hardware: HardwareParams) -> int:
    """Return how many rows are turned at a time at most."""
    return min(max(_group(match), hardware.lanes(match.bits)), _power(match.rows))


def _even(extent: int, block: int, most: int) -> int:
    """Return into how many blocks tiles of at most so many elements are best divided."""
    blocks = -(-extent // block)
    tiles = -(-blocks // max(1, most // block))
    return -(-blocks // tiles)


def _power(extent: int) -> int:
    return 1 << (extent.bit_length() - 1)


def _crossed(loops: StridedLoops) -> int | None:
    """Return the loop along which what is turned is read; None if there is no such read."""
    for read in loops.reads:
        if _is_turned(read) and 1 in read.strides[:-1]:
            return read.strides.index(1)
    return None


def _is_turned(read: StridedRead) -> bool:
    return read.strides[-1:] not in {(), (0,), (1,)}  # there is no loop over a single element


def _bits(block: SBlock, loops: StridedLoops) -> int | None:
    """Return the size of the largest element; None where there are some that have no vectors."""
    kinds = [str(block.writes[0].source.dtype), *(str(r.load.source.dtype) for r in loops.reads)]
    if not isinstance(block.body.value, TensorLoad) and "bool" in kinds:
        return None
    sizes = [8 if kind == "bool" else int(tvm.runtime.DataType(kind).bits) for kind in kinds]
    return max(sizes) if all(size in {8, 16, 32, 64} for size in sizes) else None


_Held = tuple[TensorLoad, Any]
"""A load, and the buffer that holds its block in columns."""


class _Writing:
    """Writes the loops of a function."""

    def __init__(
        self, block: SBlock, loops: StridedLoops, crossed: int, knobs: TurnedBlock
    ) -> None:
        self._block, self._loops, self._crossed, self._knobs = block, loops, crossed, knobs
        self._copies = isinstance(block.body.value, TensorLoad)
        self._index = str(block.iter_vars[-1].var.ty.dtype)
        self._views: list[tuple[Any, Any]] = []
        for tensor in [block.body.buffer, *(read.load.source for read in loops.reads)]:
            if not any(tensor.same_as(one) for one, _ in self._views):
                self._views.append((tensor, self._row(tensor)))

    def statement(self) -> tirx.Stmt:
        """Return the body of the function."""
        with IRBuilder() as builder:
            self._tiles()
        named = [tirx.DeclBuffer(view, data=tensor.data) for tensor, view in self._views]
        return tirx.SeqStmt([*named, builder.get()])

    def _row(self, tensor: tvm.ir.Var) -> tvm.ir.Var:
        """Return a tensor as a row; elements that are only moved are numbers of their size."""
        size, kind = math.prod(map(int, tensor.shape)), str(tensor.dtype)
        if self._copies:
            kind = f"int{max(8, int(tvm.runtime.DataType(kind).bits))}"
        return tirx.decl_buffer((size,), kind, f"{tensor.name}_row", tensor.data, layout=None)

    def _of(self, tensor: tvm.ir.Var) -> tvm.ir.Var:
        return next(view for one, view in self._views if one.same_as(tensor))

    def _number(self, value: int) -> Expr:
        return number_of(value, self._index)

    def _tiles(self) -> None:
        loops, knobs = self._loops, self._knobs
        rows, columns = loops.extents[-1], loops.extents[self._crossed]
        across = -(-columns // (knobs.columns * knobs.across))
        down = -(-rows // (knobs.width * knobs.down))
        others = loops.outside(self._crossed, len(loops.extents) - 1)
        extents = [*(loops.extents[loop] for loop in others), down, across]
        kind = T.parallel if knobs.threads and math.prod(extents) > 1 else T.serial
        with kind(self._number(0), self._number(math.prod(extents))) as job, T.sblock("turned"):
            written, *read = [tensor for tensor, _ in self._views]
            T.reads(*map(whole, read))
            T.writes(whole(written))
            *outer, row, column = [T.Bind(i) for i in unfold(extents, job)]
            with T.grid(self._number(knobs.across), self._number(knobs.down)) as (q, p):
                at: list[Any] = [None] * len(loops.extents)
                for loop, index in zip(others, outer, strict=True):
                    at[loop] = index
                first = column * knobs.across + q
                at[self._crossed] = T.Bind(_start(first, knobs.columns, columns))
                at[-1] = T.Bind(_start(row * knobs.down + p, knobs.width, rows))
                self._turn(at)

    def _turn(self, at: Sequence[Expr]) -> None:
        """Write one block."""
        store, width = self._of(self._block.body.buffer), self._knobs.width
        start = _place(self._number(0), self._loops.written, at)
        apart = self._loops.written[self._crossed]
        turned = [read for read in self._loops.reads if self._turns(read)]
        if self._copies:
            for h, vector in enumerate(self._columns(turned[0], at)):
                T.buffer_store(store, vector, [tirx.Ramp(start + h * apart, 1, width)])
            return
        held = self._held(turned, at)
        for h in range(self._knobs.columns):
            with T.vectorized(self._number(0), self._number(width)) as lane:
                here = [*at[:-1], at[-1] + lane]
                here[self._crossed] = at[self._crossed] + h
                value = self._value(held, h * width + lane, here)
                T.buffer_store(store, value, [start + h * apart + lane])

    def _held(self, turned: Sequence[StridedRead], at: Sequence[Expr]) -> list[_Held]:
        """Turn what is read across, and keep it where later passes make registers of it."""
        held: list[_Held] = []
        for read in turned:
            if any(structural_equal(read.load, one) for one, _ in held):
                continue
            size, kind = self._knobs.columns * self._knobs.width, str(read.load.source.dtype)
            room = T.sblock_alloc_buffer((size,), kind, scope="local")
            held.append((read.load, room))
            for h, vector in enumerate(self._columns(read, at)):
                place = self._number(h * self._knobs.width)
                T.buffer_store(room, vector, [tirx.Ramp(place, 1, self._knobs.width)])
        return held

    def _value(self, held: Sequence[_Held], lane: Expr, at: Sequence[Expr]) -> Expr:
        """Return an element of the output; `lane` is its place among what is turned."""

        def load(one: TensorLoad) -> Expr:
            for known, room in held:
                if structural_equal(known, one):
                    return room[lane]
            read = next(read for read in self._loops.reads if read.load.same_as(one))
            return self._of(one.source)[_place(self._number(read.base), read.strides, at)]

        return substitute(self._block.body.value, [], load)

    def _turns(self, read: StridedRead) -> bool:
        return _is_turned(read) and read.strides[self._crossed] == 1

    def _columns(self, read: StridedRead, at: Sequence[Expr]) -> list[Expr]:
        """Read a block in rows and return its columns, as vectors."""
        group, width = self._knobs.columns, self._knobs.width
        view, apart = self._of(read.load.source), read.strides[-1]
        start = T.Bind(_place(self._number(read.base), read.strides, at))
        vectors = []
        for h in range(group):
            parts = [
                view[tirx.Ramp(start + (g * group + h) * apart, 1, group)]
                for g in range(width // group)
            ]
            vectors.append(T.Bind(_joined(parts)))
        for _ in range(group.bit_length() - 1):
            half = group // 2
            vectors = [
                T.Bind(_zipped(vectors[h], vectors[h + half], group, width, upper))
                for h in range(half)
                for upper in (False, True)
            ]
        return vectors


def _place(base: Expr, strides: Sequence[int], at: Sequence[Expr]) -> Expr:
    for stride, index in zip(strides, at, strict=True):
        base = base + index * stride
    return base


def _start(block: Expr, size: int, extent: int) -> Expr:
    """Return where a block begins: the last one ends where the side does."""
    return tirx.min(block * size, extent - size)


def _joined(parts: Sequence[Expr]) -> Expr:
    """Return one vector of several."""
    if len(parts) == 1:
        return parts[0]
    lanes = sum(int(tvm.runtime.DataType(str(part.ty.dtype)).lanes) for part in parts)
    return tirx.Shuffle(list(parts), [tirx.const(i, "int32") for i in range(lanes)])


def _zipped(one: Expr, other: Expr, group: int, width: int, upper: bool) -> Expr:  # noqa: FBT001
    """Return two vectors lane by lane, the lower halves of their groups or the upper ones."""
    lanes = []
    for start in range(0, width, group):
        for lane in range(start, start + group // 2):
            lanes += [lane + upper * group // 2, width + lane + upper * group // 2]
    return tirx.Shuffle([one, other], [tirx.const(i, "int32") for i in lanes])
