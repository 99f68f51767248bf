"""Writes the AMX instructions that load tiles, add their products and store a block's sums.

All sums of the block stay in registers from the first product to the last, and are then written to
a buffer. Tiles of the input are read where they lie: its rows are the pixels beside each other, a
fixed number of bytes apart, whatever the step of a convolution is.

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
    store(sums[0, 0], 0), store(sums[0, 16], 1), store(sums[14, 0], 2), store(sums[14, 16], 3)
    release()

¹ and release: the pass `configure_tiles` moves them out of the loop over blocks. Loops are written
by `tiling/tile_pipeline.py`.

Lines of few pixels would leave most rows empty. Flat tiles run over the ends of lines, and over
their padding; the sums of the padding are never read.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from autopipe.compiler.codegen.configure_tiles import CONFIGURE, RELEASE
from autopipe.schedules.analysis.tile_products import COLUMNS, TileProduct
from autopipe.schedules.tiling.fetching import build_prefetch
from autopipe.schedules.tiling.tile_registers import Registers

_WORD: Final = 4
"""Bytes of a sum, and of a word of a configuration."""

Moves = tuple[tuple[int, ...], ...]
"""For each axis of an operand, elements for one step of each loop."""


@dataclass(frozen=True, slots=True)
class TileKernel:
    """The products of one block of outputs."""

    instruction: TileProduct
    registers: Registers
    step: int
    """Products that an instruction adds to each sum."""
    extents: tuple[int, ...]
    """Extents of all reductions; of the innermost one it is the number of instructions."""
    given: Moves
    """Strides of the input for a line, a pixel, and each reduction but the innermost."""
    weights: Moves
    """Strides of the unpacked weight axes for each reduction but the innermost."""
    ahead: int = 0
    """How many steps before they are read weights are fetched; 0: never."""

    def _tiles(self) -> Iterator[tuple[int, int]]:
        """Yield the tiles of sums: of each tile of the input with each of the weights."""
        return product(range(len(self.registers.strips)), range(self.registers.vectors))

    @property
    def steps(self) -> int:
        """Number of steps of the sum."""
        return math.prod(self.extents)

    @property
    def height(self) -> int:
        """Number of rows of sums."""
        return sum(strip.rows for strip in self.registers.strips)

    @property
    def width(self) -> int:
        """Number of columns of sums."""
        return self.registers.vectors * COLUMNS

    def configured(self) -> tirx.Stmt:
        """Return the instruction that configures rows and bytes of each tile register."""
        configuration = self.registers.configuration(self.step // self.instruction.group * _WORD)
        words = (configuration[at : at + _WORD] for at in range(0, len(configuration), _WORD))
        numbers = (int.from_bytes(word, "little", signed=True) for word in words)
        return tirx.Evaluate(tirx.call_llvm_intrin("void", CONFIGURE, *map(tirx.const, numbers)))

    def released(self) -> tirx.Stmt:
        """Return the instruction that releases the tile registers."""
        return tirx.Evaluate(tirx.call_llvm_intrin("void", RELEASE))

    def cleared(self) -> Iterator[tirx.Stmt]:
        """Yield the instructions that set all sums to zero."""
        for strip, vector in self._tiles():
            yield _build_tile_op("tilezero", self.registers.sums(strip, vector))

    def products(
        self, input_place: "OperandPlace", weight_place: "OperandPlace", at: Sequence[Var]
    ) -> Iterator[list[tirx.Stmt]]:
        """Yield the instructions of each product of a step, with its loads; `at` are the loops."""
        *outer, inner = at
        for axis, moves in enumerate(self.given):
            input_place = input_place.moved(axis, _compute_offset(outer, moves[2:]))
        for axis, moves in enumerate(self.weights):
            weight_place = weight_place.moved(axis + 1, _compute_offset(outer, moves))
        input_place = input_place.moved(-1, inner * self.step)
        weight_place = weight_place.moved(-3, inner * (self.step // self.instruction.group))
        strips, keeps_input = range(len(self.registers.strips)), self.registers.vectors > 1
        load_statements = (
            [self._load_input(input_place, strip) for strip in strips] if keeps_input else []
        )
        for vector in range(self.registers.vectors):
            register = self.registers.weights(vector)
            load_statements += self._load_weights(
                weight_place.moved(-2, COLUMNS * vector), register
            )
            for strip in strips:
                if not keeps_input:
                    load_statements.append(self._load_input(input_place, strip))
                operands = self.registers.sums(strip, vector), self.registers.given(strip), register
                yield [*load_statements, _build_tile_op(self.instruction.name, *operands)]
                load_statements = []

    def _load_weights(self, place: "OperandPlace", register: int) -> Iterator[tirx.Stmt]:
        """Yield the load of a tile of weights, and prefetches of one that is read steps later.

        Packed weights lie in the order of the steps, so it is at the same address and a constant.
        Behind the last step are those of the next strip, and behind all of them none: there a fetch
        does nothing.
        """
        group = [int(axis == len(place.indices) - 3) for axis in range(len(place.indices))]
        yield _build_tile_op("tileloadd64", register, place.address(), place.apart(group))
        rows = self.step // self.instruction.group
        for row in range(rows if self.ahead else 0):
            later = place.moved(-3, self.ahead * rows + row)
            yield tirx.Evaluate(build_prefetch(later.element()))

    def _load_input(self, place: "OperandPlace", strip: int) -> tirx.Stmt:
        """Return the load of a tile of the input."""
        strip_start = self.registers.strips[strip]
        for axis, moves in enumerate(self.given):
            place = place.moved(axis, moves[0] * strip_start.line + moves[1] * strip_start.pixel)
        row_stride = place.apart([moves[1] for moves in self.given])
        return _build_tile_op(
            "tileloadd64", self.registers.given(strip), place.address(), row_stride
        )

    def stored(self, sums: Var) -> Iterator[tirx.Stmt]:
        """Yield the stores of all sums to a buffer, one tile of the input below the other."""
        first, row = OperandPlace(sums, (tirx.const(0), tirx.const(0))), 0
        bytes_ = tirx.const(self.width * _WORD, "int64")
        for at, strip in enumerate(self.registers.strips):
            for vector in range(self.registers.vectors):
                to = first.moved(-2, row).moved(-1, COLUMNS * vector)
                yield _build_tile_op(
                    "tilestored64", self.registers.sums(at, vector), to.address(), bytes_
                )
            row += strip.rows


@dataclass(frozen=True, slots=True)
class OperandPlace:
    """An element of a buffer."""

    buffer: Var
    indices: tuple[Expr, ...]

    def moved(self, axis: int, by: Expr | int) -> "OperandPlace":
        """Return the element so many further along an axis."""
        if isinstance(by, int) and by == 0:
            return self
        indices = list(self.indices)
        indices[axis] = indices[axis] + by
        return OperandPlace(self.buffer, tuple(indices))

    def element(self) -> TensorLoad:
        """Return the load of the element."""
        return tirx.BufferLoad(self.buffer, list(self.indices))

    def address(self) -> Expr:
        """Return the address of the element."""
        return tirx.address_of(self.element())

    def apart(self, moves: Sequence[int]) -> Expr:
        """Return the bytes between two elements that are `moves` apart along each axis."""
        kind, elements, size = self.buffer.ty, 0, 1
        for move, extent in zip(reversed(moves), reversed(kind.shape), strict=True):
            elements += move * size
            size *= int(extent)
        size = int(tvm.runtime.DataType(str(kind.dtype)).itemsize)
        return tirx.const(elements * size, "int64")


def _compute_offset(names: Sequence[Var], moves: Sequence[int]) -> Expr | int:
    """Compute the offset along an axis from the loop variables."""
    total: Expr | int = 0
    for name, move in zip(names, moves, strict=True):
        total = total if move == 0 else total + name * move
    return total


def _build_tile_op(name: str, *arguments: Expr | int) -> tirx.Stmt:
    """Return an instruction on tiles; arguments that are numbers are registers."""
    operands = [tirx.IntImm("int8", one) if isinstance(one, int) else one for one in arguments]
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *operands))
