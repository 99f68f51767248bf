"""Writes the loops of a block of outputs that is summed in registers of tiles.

All sums of the block stay in registers from the first product to the last, and are then written to
the block's buffer. Tiles of the input are read where they lie: its rows are the pixels beside each
other, a fixed number of bytes apart, whatever the step of a convolution is.

Example: 2 lines of 14 pixels and 32 columns of a 3x3 convolution, 64 channels at a time:

    configure(...)                                     # 0 to 5 have 14 rows, 6 and 7 have 16 ¹
    zero(0), zero(1), zero(2), zero(3)
    for y, x, step in grid(3, 3, channels // 64):
        load(4, input[line + y, x, 64 * step])         # 14 rows, `channels` bytes apart
        load(5, input[line + 1 + y, x, 64 * step])
        load(6, packed[y, x, 16 * step, 0])            # 16 rows, 128 bytes apart
        add(0, 4, 6), add(2, 5, 6)
        load(7, packed[y, x, 16 * step, 16])
        add(1, 4, 7), add(3, 5, 7)
    store(sums[0, 0, 0], 0), store(sums[0, 0, 16], 1), store(sums[1, 0, 0], 2), ...
    release()

¹ and release: moved out of the loop over blocks later, see `compiler/tile_configuration.py`.

Lines of few pixels would leave most rows empty. Flat tiles run over the ends of lines, and over
what pads them; their sums go to a buffer of their own, from which those of pixels are taken.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad, TensorRegion, Var
from tvm.s_tir import MatchBufferRegion, SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV

from autopipe.compiler.tile_configuration import CONFIGURE, RELEASE
from autopipe.schedules.analysis.tile_products import COLUMNS, TileProduct
from autopipe.schedules.tiling.fetching import fetch
from autopipe.schedules.tiling.tile_registers import Registers

_WORD: Final = 4
"""Bytes of a sum, and of a word of a configuration."""

Moves = tuple[tuple[int, ...], ...]
"""For each axis of an operand, elements for one step of each loop."""


@dataclass(frozen=True, slots=True)
class TileKernel:
    """The loops of one block of outputs."""

    instruction: TileProduct
    registers: Registers
    pitch: int | None
    """Rows from line to line where tiles are flat."""
    step: int
    """Products that an instruction adds to each sum."""
    extents: tuple[int, ...]
    """Of all reductions; of the innermost one it is the number of instructions."""
    given: Moves
    """How far the input moves for a line, for a pixel, and for all reductions but the innermost."""
    weights: Moves
    """How far the weights move for all reductions but the innermost, but for their packed axes."""
    ahead: int = 0
    """How many steps before they are read weights are fetched; 0: never."""

    def write(self, sch: Schedule, outer: SBlockRV, operands: Sequence[Var]) -> None:
        """Put the loops into a block of all sums; `operands` are the input and packed weights."""
        block = sch.get(outer)
        given, packed = (_first(block, operand) for operand in operands)
        target = _part(block.writes[0])
        sums = target.buffer
        own, flat = [], sums
        if self.pitch is not None:
            rows = sum(strip.rows for strip in self.registers.strips)
            flat = tirx.decl_buffer((rows, sums.ty.shape[-1]), sums.ty.dtype, "flat", scope="local")
            own.append(flat)
        statements = [
            self._configured(), *self._cleared(), self._summed(given, packed),
            *self._stored(flat), tirx.Evaluate(tirx.call_llvm_intrin("void", RELEASE)),
            *([] if self.pitch is None else [_taken(flat, sums, self.pitch)]),
        ]  # fmt: skip
        written = SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, tirx.SeqStmt(statements),
            alloc_buffers=own, match_buffers=[target],
        )  # fmt: skip
        sch.state.replace(sch.get_sref(outer), written, {block: written})

    def _tiles(self) -> Iterator[tuple[int, int]]:
        """Yield the tiles of sums: of each tile of the input with each of the weights."""
        return product(range(len(self.registers.strips)), range(self.registers.vectors))

    def _configured(self) -> tirx.Stmt:
        """Return what tells the processor how many rows and bytes each register has."""
        told = self.registers.configuration(self.step // self.instruction.group * _WORD)
        words = (told[at : at + _WORD] for at in range(0, len(told), _WORD))
        numbers = (int.from_bytes(word, "little", signed=True) for word in words)
        return tirx.Evaluate(tirx.call_llvm_intrin("void", CONFIGURE, *map(tirx.const, numbers)))

    def _cleared(self) -> Iterator[tirx.Stmt]:
        for strip, vector in self._tiles():
            yield _tile("tilezero", self.registers.sums(strip, vector))

    def _summed(self, given: "_Place", packed: "_Place") -> tirx.Stmt:
        """Return the loops over the reductions, in which all tiles of the block are added to."""
        names = [tirx.Var(f"r{at}", "int32") for at in range(len(self.extents))]
        for axis, moves in enumerate(self.given):
            given = given.moved(axis, _moved(names[:-1], moves[2:]))
        for axis, moves in enumerate(self.weights):
            packed = packed.moved(axis + 1, _moved(names[:-1], moves))
        given = given.moved(-1, names[-1] * self.step)
        packed = packed.moved(-3, names[-1] * (self.step // self.instruction.group))
        nest: tirx.Stmt = tirx.SeqStmt(list(self._products(given, packed)))
        return _nested(zip(names, self.extents, strict=True), nest)

    def _products(self, given: "_Place", packed: "_Place") -> Iterator[tirx.Stmt]:
        """Yield what loads tiles of both and adds their products, for one step."""
        registers = self.registers
        kept = registers.vectors > 1
        if kept:
            for strip in range(len(registers.strips)):
                yield self._loaded(given, strip)
        group = [int(axis == len(packed.indices) - 3) for axis in range(len(packed.indices))]
        for vector in range(registers.vectors):
            place, weights = packed.moved(-2, COLUMNS * vector), registers.weights(vector)
            yield _tile("tileloadd64", weights, place.address(), place.apart(group))
            yield from self._fetched(place)
            for strip in range(len(registers.strips)):
                if not kept:
                    yield self._loaded(given, strip)
                added = registers.sums(strip, vector), registers.given(strip), weights
                yield _tile(self.instruction.name, *added)

    def _fetched(self, weights: "_Place") -> Iterator[tirx.Stmt]:
        """Yield what brings a tile of weights near that is read some steps later.

        Packed weights lie in the order of the steps, so it is at the same address and a constant.
        Behind the last step are those of the next strip, and behind all of them none: there a fetch
        does nothing.
        """
        rows = self.step // self.instruction.group
        for row in range(rows if self.ahead else 0):
            later = weights.moved(-3, self.ahead * rows + row)
            yield tirx.Evaluate(fetch(later.element()))

    def _loaded(self, given: "_Place", strip: int) -> tirx.Stmt:
        """Return what loads a tile of the input."""
        found = self.registers.strips[strip]
        for axis, moves in enumerate(self.given):
            given = given.moved(axis, moves[0] * found.line + moves[1] * found.pixel)
        apart = given.apart([moves[1] for moves in self.given])
        return _tile("tileloadd64", self.registers.given(strip), given.address(), apart)

    def _stored(self, target: Var) -> Iterator[tirx.Stmt]:
        """Yield what writes all sums to a buffer: to that of the block, or a flat one."""
        shape = target.ty.shape
        first, row = _Place(target, tuple(tirx.const(0) for _ in shape)), 0
        for at, strip in enumerate(self.registers.strips):
            place = first.moved(-2, strip.pixel if self.pitch is None else row)
            if self.pitch is None:
                place = place.moved(-3, strip.line)
            row += strip.rows
            for vector in range(self.registers.vectors):
                register, to = self.registers.sums(at, vector), place.moved(-1, COLUMNS * vector)
                bytes_ = tirx.const(int(shape[-1]) * _WORD, "int64")
                yield _tile("tilestored64", register, to.address(), bytes_)


@dataclass(frozen=True, slots=True)
class _Place:
    """An element of a buffer."""

    buffer: Var
    indices: tuple[Expr, ...]

    def moved(self, axis: int, by: Expr | int) -> "_Place":
        """Return the element so many further along an axis."""
        if isinstance(by, int) and by == 0:
            return self
        indices = list(self.indices)
        indices[axis] = indices[axis] + by
        return _Place(self.buffer, tuple(indices))

    def element(self) -> TensorLoad:
        return tirx.BufferLoad(self.buffer, list(self.indices))

    def address(self) -> Expr:
        return tirx.address_of(self.element())

    def apart(self, moves: Sequence[int]) -> Expr:
        """Return the bytes between two elements that are so far apart along each axis."""
        kind, elements, size = self.buffer.ty, 0, 1
        for move, extent in zip(reversed(moves), reversed(kind.shape), strict=True):
            elements += move * size
            size *= int(extent)
        size = int(tvm.runtime.DataType(str(kind.dtype)).itemsize)
        return tirx.const(elements * size, "int64")


def _first(block: SBlock, operand: Var) -> _Place:
    """Return the first element of an operand that a block reads."""
    region = next(read for read in block.reads if read.source.same_as(operand))
    return _Place(operand, tuple(part.min for part in region.region))


def _part(region: TensorRegion) -> MatchBufferRegion:
    """Return a buffer for the part of another that a block writes, wherever that comes to lie."""
    kind = region.source.ty
    shape = [int(part.extent) for part in region.region]
    buffer = tirx.decl_buffer(
        shape, str(kind.dtype), f"{region.source.name}_part",
        strides=[tirx.Var(f"apart{axis}", "int32") for axis in range(len(shape))],
        elem_offset=tirx.Var("first", "int32"), scope=region.source.scope(), offset_factor=1,
    )  # fmt: skip
    return MatchBufferRegion(buffer, region)


def _taken(flat: Var, sums: Var, pitch: int) -> tirx.Stmt:
    """Return loops that copy the sums of pixels from those of flat tiles."""
    *_, lines, pixels, columns = map(int, sums.ty.shape)
    line, pixel, vector = (tirx.Var(name, "int32") for name in ("line", "pixel", "vector"))
    lanes = tirx.Ramp(vector * COLUMNS, tirx.const(1), COLUMNS)
    load = tirx.BufferLoad(flat, [line * pitch + pixel, lanes])
    outer = [tirx.const(0)] * (len(sums.ty.shape) - 3)
    store = tirx.BufferStore(sums, load, [*outer, line, pixel, lanes])
    return _nested([(line, lines), (pixel, pixels), (vector, columns // COLUMNS)], store)


def _nested(loops: Iterable[tuple[Var, int]], body: tirx.Stmt) -> tirx.Stmt:
    for name, extent in reversed(list(loops)):
        kind = tirx.ForKind.SERIAL
        body = tirx.For(name, tirx.const(0), tirx.const(extent), kind, body)
    return body


def _moved(names: Sequence[Var], moves: Sequence[int]) -> Expr | int:
    """Return by how much an axis moves for steps of loops."""
    total: Expr | int = 0
    for name, move in zip(names, moves, strict=True):
        total = total if move == 0 else total + name * move
    return total


def _tile(name: str, *arguments: Expr | int) -> tirx.Stmt:
    """Return an instruction on tiles; arguments that are numbers are registers."""
    given = [tirx.IntImm("int8", one) if isinstance(one, int) else one for one in arguments]
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *given))
