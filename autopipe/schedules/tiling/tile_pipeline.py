"""Writes blocks of sums in tiles, with the results of a block beside the products of the next one.

AMX tiles have a unit of their own, which multiplies while the vector units work. Out-of-order
execution does not overlap them by itself: the results of a block are more instructions than the
reorder buffer holds. So results are written in pieces, between the products.

Example: four blocks of 64 rows, 16 columns and 4 steps of the sum (`tiling/tile_kernel.py`).

    sums = [64, 16]                                             # on the stack
    for at in range(4 + 1):
        for step in range(4):
            if at < 4:
                load(4, input[at, step]), add(0, 4, 7), ...     # products of block `at`
            if at > 0:
                for row in range(16):                           # a piece of the block before
                    y[at - 1, 16 * step + row] = rescaled(sums[16 * step + row])
        if at < 4:
            store(sums[0], 0), store(sums[16], 1), ...          # no longer needed

The first turn has products alone, the last one results alone. Where steps are few, pieces are
between the products of a step as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tvm import tirx
from tvm.ir import Expr, Var
from tvm.s_tir import SBlock
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.loops.count_operations import count_arithmetic
from autopipe.schedules.analysis.blocks import axes_of, number_of
from autopipe.schedules.analysis.expressions import (
    open_loop,
    open_loops,
    ravel_index,
    replace_variables,
)
from autopipe.schedules.analysis.tile_products import COLUMNS
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.loop_writer import job_block, write_output
from autopipe.schedules.tiling.tile_kernel import OperandPlace, TileKernel
from autopipe.schedules.tiling.tile_places import PackedTiles, TilePlaces

_PIECE: Final = 48
"""Most operations on vectors in a piece of the results, if smaller ones are possible."""


@dataclass(frozen=True, slots=True)
class TilePipeline:
    """The loops over all blocks of a function."""

    kernel: TileKernel
    places: TilePlaces
    packed: PackedTiles
    last: SBlock | None
    """The elementwise block that computes results from sums, if there is one."""
    chain: int
    """Blocks that a core computes one behind another; divides the number of blocks."""
    pitch: int
    """Rows of sums from a line to the next."""
    parallel: bool

    def write(self) -> tirx.Stmt:
        """Return the loops."""
        cores = self.places.blocks // self.chain
        reads = [] if self.last is None else [read.source for read in self.last.reads]
        output_reads = [buffer for buffer in reads if not buffer.same_as(self._total)]
        output = self._total if self.last is None else self.last.body.buffer
        inputs = self.packed.sums.reads[1 - self.packed.found.weights].source
        buffers = [inputs, self.packed.buffer, *output_reads], [output]
        name = f"{self.packed.found.name}_tiles"
        jobs = job_block(name, cores, self._dtype, buffers, parallel=self.parallel)
        with IRBuilder() as builder, jobs as core:
            shape = self.kernel.height, self.kernel.width
            sums = T.sblock_alloc_buffer(shape, str(self._total.ty.dtype), scope="local")
            with open_loop(T.serial, self.chain + 1, self._dtype) as at:
                self._turn(sums, core * self.chain, at)
        return builder.get()

    @property
    def _total(self) -> Var:
        """The buffer of all sums; here each core has one for a block."""
        return self.packed.sums.writes[0].source

    def _turn(self, sums: Var, first: Expr, at: Var) -> None:
        """Write one turn of a core; `first` is its first block."""
        input_place, weight_place = self._locate_operands(first + at)
        T.add_to_parent(self.kernel.configured())
        _emit_statements(self.kernel.cleared())
        with open_loops(T.serial, self.kernel.extents, "int32") as steps:
            products = list(self.kernel.products(input_place, weight_place, steps))
            parts = self._choose_part_count(len(products))
            for part in range(parts):
                part_products = products[
                    part * len(products) // parts : (part + 1) * len(products) // parts
                ]
                with T.If(at < self.chain), T.Then():
                    _emit_statements([one for product in part_products for one in product])
                piece = ravel_index(self.kernel.extents, steps) * parts + part
                self._write_piece(sums, first + at - 1, piece, at, parts)
        with T.If(at < self.chain), T.Then():
            _emit_statements(self.kernel.stored(sums))
        T.add_to_parent(self.kernel.released())

    def _locate_operands(self, block: Expr) -> tuple[OperandPlace, OperandPlace]:
        """Return where the first elements of the input and of the weights of a block are."""
        strip, start = self.places.strip_and_start(block)
        spatial, reduction_axes = axes_of(self.packed.sums)
        values = [(axis.var, one) for axis, one in zip(spatial, start, strict=True)]
        values += [(axis.var, number_of(0, self._dtype)) for axis in reduction_axes]
        read = self.packed.sums.reads[1 - self.packed.found.weights]
        first = tuple(replace_variables(part.min, values) for part in read.region)
        return OperandPlace(read.source, first), self.packed.first(strip, values)

    def _write_piece(self, sums: Var, block: Expr, piece: Expr, at: Var, parts: int) -> None:
        """Write a piece of the results of a block, behind one of the `parts` of a step."""
        line, size = self.places.rows, self._size(parts)
        pieces, first = self.places.lines * line // size, piece * size
        has_spare_steps = pieces < self.kernel.steps * parts
        _, start = self.places.strip_and_start(block)
        with (
            T.If(tirx.all(at > 0, piece < pieces) if has_spare_steps else at > 0),
            T.Then(),
            T.grid(max(1, size // line), min(size, line)) as (lines, rows),
            T.unroll(0, self.kernel.registers.vectors) as strip,
            T.vectorized(0, COLUMNS) as lane,
        ):
            inner = first // line + lines, first % line + rows, strip * COLUMNS + lane
            element = sums[inner[0] * self.pitch + inner[1], inner[2]]
            moves = [T.Cast(str(start[-1].ty.dtype), move) for move in inner[-len(start) :]]
            outer_count = len(start) - len(moves)
            ends = [one + move for one, move in zip(start[outer_count:], moves, strict=True)]
            spatial, _ = axes_of(self.packed.sums)
            index = zip(spatial, [*start[:outer_count], *ends], strict=True)
            values = [(axis.var, one) for axis, one in index]
            write_output([self.packed.sums.body], self.last, [element], values)

    def _choose_part_count(self, products: int) -> int:
        """Choose the number of parts of a step's products; a piece of results follows each part."""
        work = 1
        if self.last is not None:
            bare = replace_variables(
                self.last.body.value, [], lambda load: tirx.Var("one", load.ty)
            )
            work = max(1, count_arithmetic(bare))
        most = _PIECE / (self.kernel.registers.vectors * work)
        counts = list_divisors(products, products)
        return next((count for count in counts if self._size(count) <= most), products)

    def _size(self, parts: int) -> int:
        """Return the rows of a piece of results where a step has `parts` parts.

        Example: 28 rows in 9 steps are pieces of 4, and two of the steps have none.
        """
        line, steps = self.places.rows, self.kernel.steps * parts
        rows = self.places.lines * line
        sizes = (size for size in list_divisors(rows, rows) if line % size == 0 or size % line == 0)
        return next(size for size in sizes if rows // size <= steps)

    @property
    def _dtype(self) -> str:
        return str(axes_of(self.packed.sums)[0][-1].var.ty.dtype)


def _emit_statements(statements: Iterable[tirx.Stmt]) -> None:
    for statement in statements:
        T.add_to_parent(statement)
