"""Writes blocks of sums in tiles, with the results of a block beside the products of the next one.

Registers of tiles have a unit of their own, which multiplies while the units for vectors work. A
processor does not find that work by itself: all results of a block are more instructions than it
looks ahead. So they are written in pieces, between the products.

Example: four blocks of 64 rows and 16 columns, whose sums have 4 steps (`tiling/tile_kernel.py`).

    sums = [64, 16]                                             # on the stack
    for at in range(4 + 1):
        for step in range(4):
            if at < 4:
                load(4, input[at, step]), add(0, 4, 7), ...     # products of block `at`
            if at > 0:
                for row in range(16):                           # a piece of the block before
                    y[at - 1, 16 * step + row] = rescaled(sums[16 * step + row])
        if at < 4:
            store(sums[0], 0), store(sums[16], 1), ...          # which nobody needs any more

The first turn has products alone, the last one results alone. Where steps are few, pieces are
between the products of a step as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.operations import operations
from autopipe.schedules.analysis.blocks import number_of
from autopipe.schedules.analysis.expressions import Values, substitute, whole
from autopipe.schedules.analysis.tile_products import COLUMNS
from autopipe.schedules.divisors import divisors
from autopipe.schedules.primitives import rewrite
from autopipe.schedules.tiling.tile_kernel import Place, TileKernel

_PIECE: Final = 48
"""Most operations on vectors in a piece of the results, if smaller ones are possible."""


@dataclass(frozen=True, slots=True)
class TilePipeline:
    """The loops over all blocks of a function."""

    kernel: TileKernel
    chain: int
    """Blocks that a core computes one behind another."""
    lines: int
    rows: int
    """Outputs of a block along the last but two axes."""
    pitch: int
    """Rows of sums from a line to the next."""
    parallel: bool

    def write(self, sch: Schedule, loop: LoopRV, sums: SBlockRV, operands: Sequence[Var]) -> None:
        """Put the loops in the place of the one in which sums and results follow each other.

        `sums` are those of a block, `operands` the input and packed weights.
        """
        blocks, block = sch.get(loop), sch.get(sums)
        products, results = (_Nest.of(blocks.loop_var, part) for part in blocks.body.seq)
        total = block.writes[0].source
        given, packed = (Place.first(block, operand) for operand in operands)
        turns = _Turns(self, products, results, total, given, packed)
        written = turns.write(f"{block.name_hint}_tiles", int(blocks.extent) // self.chain)

        def replaced(nest: tirx.For) -> tirx.Stmt:
            return written if nest.same_as(blocks) else nest

        root = sch.get(sch.get_sblock("root"))
        kept = [buffer for buffer in root.alloc_buffers if not buffer.same_as(total)]
        rewrite(sch, tvm_ffi.structural_map(root.body, (tirx.For, replaced)), kept)


@dataclass(frozen=True, slots=True)
class _Nest:
    """A block and the loops around it."""

    blocks: Var
    """The loop over all blocks of sums."""
    loops: Sequence[Var]
    """Those within it, the outermost first."""
    realize: SBlockRealize

    @classmethod
    def of(cls, blocks: Var, nest: tirx.Stmt) -> "_Nest":
        """Return it for the loops around a block."""
        loops = []
        while isinstance(nest, tirx.For):
            loops.append(nest.loop_var)
            nest = nest.body
        return cls(blocks, loops, nest)

    @property
    def block(self) -> SBlock:
        """The block itself."""
        return self.realize.block

    def at(self, block: Expr, *inner: Expr) -> Values:
        """Return what the axes are at a block of sums and values of the last loops.

        All other loops have one iteration.
        """
        zeros = [0] * (len(self.loops) - len(inner))
        given = [*(number_of(zero, self.blocks.ty.dtype) for zero in zeros), *inner]
        values = [(self.blocks, block), *zip(self.loops, given, strict=True)]
        axes = zip(self.block.iter_vars, self.realize.iter_values, strict=True)
        return [(axis.var, substitute(value, values)) for axis, value in axes]


@dataclass(frozen=True, slots=True)
class _Turns:
    """The turns of a core: products of a block, and results of the one before, in each."""

    pipeline: TilePipeline
    products: _Nest
    results: _Nest
    total: Var
    """The buffer of sums before loops are written; here each core has one for a block."""
    given: Place
    packed: Place

    def write(self, name: str, cores: int) -> tirx.Stmt:
        """Return the loops, for so many parts that may run at the same time."""
        block, kernel = self.results.block, self.pipeline.kernel
        reads = [read.source for read in block.reads if not read.source.same_as(self.total)]
        begin = T.parallel if self.pipeline.parallel and cores > 1 else T.serial
        with (
            IRBuilder() as builder,
            begin(self._number(0), self._number(cores)) as core,
            T.sblock(name),
        ):
            T.reads(*map(whole, [self.given.buffer, self.packed.buffer, *reads]))
            T.writes(whole(block.body.buffer))
            shape = kernel.height, kernel.width
            sums = T.sblock_alloc_buffer(shape, str(self.total.ty.dtype), scope="local")
            with T.serial(self._number(0), self._number(self.pipeline.chain + 1)) as at:
                self._turn(sums, core * self.pipeline.chain, at)
        return builder.get()

    def _turn(self, sums: Var, first: Expr, at: Var) -> None:
        """Write what a core does in a turn; `first` is its first block."""
        kernel, now = self.pipeline.kernel, self.products.at(first + at)
        given, packed = self.given.where(now), self.packed.where(now)
        T.add_to_parent(kernel.configured())
        _all(list(kernel.cleared()))
        with T.grid(*kernel.extents) as found:
            steps = [found] if isinstance(found, Var) else list(found)
            each = list(kernel.products(given, packed, steps))
            count = self._pieces(len(each))
            for part in range(count):
                some = each[part * len(each) // count : (part + 1) * len(each) // count]
                with T.If(at < self.pipeline.chain), T.Then():
                    _all([one for product in some for one in product])
                piece = _joined(kernel.extents, steps) * count + part
                self._piece(sums, first + at - 1, piece, at, count)
        with T.If(at < self.pipeline.chain), T.Then():
            _all(list(kernel.stored(sums)))
        T.add_to_parent(kernel.released())

    def _piece(self, sums: Var, block: Expr, piece: Expr, at: Var, count: int) -> None:
        """Write a piece of the results of a block, behind one of `count` parts of a step."""
        pipeline, size = self.pipeline, self._size(count)
        pieces, first = pipeline.lines * pipeline.rows // size, piece * size
        few = pieces < pipeline.kernel.steps * count
        with (
            T.If(tirx.all(at > 0, piece < pieces) if few else at > 0),
            T.Then(),
            T.grid(max(1, size // pipeline.rows), min(size, pipeline.rows)) as (lines, rows),
            T.unroll(0, pipeline.kernel.registers.vectors) as strip,
            T.vectorized(0, COLUMNS) as lane,
        ):
            line, row = first // pipeline.rows + lines, first % pipeline.rows + rows
            inner = [*([line] if pipeline.lines > 1 else []), row, strip, lane]
            kind = self.results.blocks.ty.dtype
            values = self.results.at(block, *(tirx.Cast(kind, one) for one in inner))
            element = sums[line * pipeline.pitch + row, strip * COLUMNS + lane]
            self._result(values, lambda load: element if self._is_sum(load) else None)

    def _result(self, values: Values, read: Callable[[TensorLoad], Expr | None]) -> None:
        """Write a result; `read` returns what the sum is that it is made from."""
        store = self.results.block.body
        index = [substitute(one, values) for one in store.indices]
        T.buffer_store(store.buffer, substitute(store.value, values, read), index)

    def _is_sum(self, load: TensorLoad) -> bool:
        return load.source.same_as(self.total)

    def _pieces(self, products: int) -> int:
        """Return in how many parts the products of a step are, with a piece behind each."""
        value = self.results.block.body.value
        bare = substitute(value, [], lambda load: tirx.Var("loaded", load.ty))
        most = _PIECE / (self.pipeline.kernel.registers.vectors * max(1, operations(bare)))
        parts = divisors(products, products)
        return next((part for part in parts if self._size(part) <= most), products)

    def _size(self, parts: int) -> int:
        """Return the rows of a piece where there are so many in a step.

        Example: 28 rows in 9 steps are pieces of 4, two thirds of the steps have one.
        """
        line, steps = self.pipeline.rows, self.pipeline.kernel.steps * parts
        rows = self.pipeline.lines * line
        sizes = (size for size in divisors(rows, rows) if line % size == 0 or size % line == 0)
        return next(size for size in sizes if rows // size <= steps)

    def _number(self, value: int) -> Expr:
        return number_of(value, self.results.blocks.ty.dtype)


def _all(statements: Sequence[tirx.Stmt]) -> None:
    for one in statements:
        T.add_to_parent(one)


def _joined(extents: Sequence[int], loops: Sequence[Var]) -> Expr:
    """Return the number of a step among those of all loops."""
    step: Expr = loops[0]
    for loop, extent in zip(loops[1:], extents[1:], strict=True):
        step = step * extent + loop
    return step
