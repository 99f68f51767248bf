"""Writes a transpose, and elementwise work around it, block by block in vector registers.

Template `transpose` has the examples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it
from tvm_ffi import structural_equal

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes
from autopipe.schedules.analysis.blocks import (
    Extent,
    is_large_enough,
    number_of,
    parts_of,
)
from autopipe.schedules.analysis.expressions import (
    open_loop,
    open_loops,
    replace_variables,
    write_branches,
)
from autopipe.schedules.analysis.strides import StridedLoops, StridedRead
from autopipe.schedules.loop_writer import FlatViews, job_loop
from autopipe.schedules.parallel_work import ELEMENTS

SHORT: Final = 8
"""Longest side that is unrolled; LLVM interleaves no more than 8 loads or stores."""


@dataclass(frozen=True, slots=True)
class TransposeTile:
    """The knobs of template `transpose`."""

    width: int
    """Rows of a block, a vector of the output; 1 leaves it to LLVM to interleave a short side."""
    columns: int
    """Columns of a block, which are shuffled in groups."""
    down: int
    """Blocks of a tile along the rows."""
    across: int
    """Blocks of a tile along the columns."""
    threads: bool = True
    """Whether threads share the tiles."""


def find_crossed_loop(loops: StridedLoops) -> int | None:
    """Return the loop along which a transposed tensor is contiguous; None if there is none."""
    for read in loops.reads:
        if _is_transposed(read) and 1 in read.strides[:-1]:
            return read.strides.index(1)
    return None


def _is_transposed(read: StridedRead) -> bool:
    return read.strides[-1:] not in {(), (0,), (1,)}  # there is no loop over a single element


_TransposedOperand = tuple[TensorLoad, Any]
"""A load, and the buffer that holds its block in columns."""


class TransposedBlocks:
    """Writes the loops of a transpose; `dynamic_sizes` is None for a function of static shapes."""

    def __init__(
        self, block: SBlock, loops: StridedLoops, crossed_axis: int,
        tile: TransposeTile, dynamic_sizes: DynamicSizes | None,
    ) -> None:  # fmt: skip
        self._block, self._loops, self._crossed = block, loops, crossed_axis
        self._tile, self._known = tile, dynamic_sizes
        self._copies = isinstance(block.body.value, TensorLoad)
        self._dtype = str(block.iter_vars[-1].var.ty.dtype)
        tensors = [block.body.buffer, *(read.load.source for read in loops.reads)]
        self._views = FlatViews(tensors, as_integers=self._copies)
        output, *read = self._views.tensors
        self._job_loop = partial(
            job_loop, "transposed", dtype=self._dtype, buffers=(read, [output])
        )

    def write(self) -> tirx.Stmt:
        """Return the body of the function."""
        threads: bool | Expr = self._tile.threads
        if self._tile.threads and self._known is not None:
            threads = is_large_enough(self._loops.extents, ELEMENTS, self._known)
        with IRBuilder() as builder:
            for parallel in write_branches(threads):
                for fits in write_branches(self._has_whole_blocks()):
                    (self._write_blocks if fits else self._write_elements)(parallel)
        return tirx.SeqStmt([*self._views.declare(), builder.get()])

    def _has_whole_blocks(self) -> bool | Expr:
        """Tell whether both sides have a whole block; a condition if that depends on the sizes."""
        if self._tile.width == 1:
            return False
        extents, tile = self._loops.extents, self._tile
        sides = ((extents[-1], tile.width), (extents[self._crossed], tile.columns))
        checks = [is_large_enough([extent], side, self._known) for extent, side in sides]
        if any(check is False for check in checks):
            return False
        conditions = [check for check in checks if check is not True]
        return tirx.all(*conditions) if conditions else True

    def _write_blocks(self, parallel: bool) -> None:  # noqa: FBT001
        """Write tiles of whole blocks; the last block along a side overlaps the one before."""
        loops, tile = self._loops, self._tile
        rows, columns = loops.extents[-1], loops.extents[self._crossed]
        outer_loops = loops.outside(self._crossed, len(loops.extents) - 1)
        extents = [
            *(loops.extents[loop] for loop in outer_loops),
            parts_of(rows, tile.width * tile.down),
            parts_of(columns, tile.columns * tile.across),
        ]
        with (
            self._job_loop(extents, parallel=parallel) as (*outer, row, column),
            open_loops(T.serial, [tile.across, tile.down], self._dtype) as (q, p),
        ):
            at = self._place_others(outer_loops, outer)
            first = column * tile.across + q
            at[self._crossed] = T.Bind(tirx.min(first * tile.columns, columns - tile.columns))
            at[-1] = T.Bind(tirx.min((row * tile.down + p) * tile.width, rows - tile.width))
            self._write_block(at)

    def _write_elements(self, parallel: bool) -> None:  # noqa: FBT001
        """Write single elements, those of a short side unrolled inside the loop over the other."""
        loops, last = self._loops, len(self._loops.extents) - 1
        sides = {loop: loops.extents[loop] for loop in (last, self._crossed)}
        lengths = {loop: side for loop, side in sides.items() if isinstance(side, int)}
        inner = min(lengths, key=lengths.__getitem__, default=last)
        outer = last + self._crossed - inner
        outer_loops = loops.outside(inner, outer)
        length = self._tile.down
        extents = [*(loops.extents[loop] for loop in outer_loops), parts_of(sides[outer], length)]
        with self._job_loop(extents, parallel=parallel) as (*index, part):
            at = self._place_others(outer_loops, index)
            start = part * length
            count = tirx.min(length, sides[outer] - start)
            loop = T.unroll if lengths.get(inner, math.inf) <= SHORT else T.serial
            with (
                open_loop(T.serial, count, self._dtype) as step,
                open_loop(loop, sides[inner], self._dtype) as at[inner],
            ):
                at[outer] = start + step
                place = _compute_offset(0, loops.written, at)
                T.buffer_store(
                    self._views.of(self._block.body.buffer),
                    self._compute_element([], place, at),
                    [place],
                )

    def _place_others(self, outer_loops: Sequence[int], index: Sequence[Expr]) -> list[Any]:
        """Return the indices of all loops, of which those of the two sides are still to be set."""
        at: list[Any] = [None] * len(self._loops.extents)
        for loop, value in zip(outer_loops, index, strict=True):
            at[loop] = value
        return at

    def _write_block(self, at: Sequence[Expr]) -> None:
        """Write one block."""
        store, width = self._views.of(self._block.body.buffer), self._tile.width
        start = _compute_offset(0, self._loops.written, at)
        column_stride = self._loops.written[self._crossed]
        transposed_reads = filter(_is_transposed, self._loops.reads)
        crossed_reads = [read for read in transposed_reads if read.strides[self._crossed] == 1]
        if self._copies:
            for h, vector in enumerate(self._load_columns(crossed_reads[0], at)):
                T.buffer_store(store, vector, [tirx.Ramp(start + h * column_stride, 1, width)])
            return
        transposed_operands = self._transpose_reads(crossed_reads, at)
        for h in range(self._tile.columns):
            with open_loop(T.vectorized, width, self._dtype) as lane:
                index = [*at[:-1], at[-1] + lane]
                index[self._crossed] = at[self._crossed] + h
                value = self._compute_element(transposed_operands, h * width + lane, index)
                T.buffer_store(store, value, [start + h * column_stride + lane])

    def _transpose_reads(
        self, crossed_reads: Sequence[StridedRead], at: Sequence[Expr]
    ) -> list[_TransposedOperand]:
        """Transpose the blocks of loads into local buffers, which LLVM keeps in registers."""
        operands: list[_TransposedOperand] = []
        for read in crossed_reads:
            if any(structural_equal(read.load, one) for one, _ in operands):
                continue
            size, dtype = self._tile.columns * self._tile.width, str(read.load.source.dtype)
            room = T.sblock_alloc_buffer((size,), dtype, scope="local")
            operands.append((read.load, room))
            for h, vector in enumerate(self._load_columns(read, at)):
                place = number_of(h * self._tile.width, self._dtype)
                T.buffer_store(room, vector, [tirx.Ramp(place, 1, self._tile.width)])
        return operands

    def _compute_element(
        self, operands: Sequence[_TransposedOperand], lane: Expr, at: Sequence[Expr]
    ) -> Expr:
        """Return an element of the output; `lane` is its place in a transposed block."""

        def load(load: TensorLoad) -> Expr:
            for operand, room in operands:
                if structural_equal(operand, load):
                    return room[lane]
            read = next(read for read in self._loops.reads if read.load.same_as(load))
            return self._views.of(load.source)[_compute_offset(read.base, read.strides, at)]

        return replace_variables(self._block.body.value, [], load)

    def _load_columns(self, read: StridedRead, at: Sequence[Expr]) -> list[Expr]:
        """Read a block in rows and return its columns, as vectors."""
        group, width = self._tile.columns, self._tile.width
        view, row_stride = self._views.of(read.load.source), read.strides[-1]
        start = T.Bind(_compute_offset(read.base, read.strides, at))
        vectors = []
        for h in range(group):
            parts = [
                view[tirx.Ramp(start + (g * group + h) * row_stride, 1, group)]
                for g in range(width // group)
            ]
            vectors.append(T.Bind(_concatenate_vectors(parts)))
        for _ in range(group.bit_length() - 1):
            half = group // 2
            vectors = [
                T.Bind(
                    _interleave_vectors(vectors[h], vectors[h + half], group, width, upper=upper)
                )
                for h in range(half)
                for upper in (False, True)
            ]
        return vectors


def _compute_offset(base: Extent, strides: Sequence[Extent], at: Sequence[Expr]) -> Expr:
    offset: Any = base
    for stride, index in zip(strides, at, strict=True):
        offset = offset + index * stride
    return offset


def _concatenate_vectors(parts: Sequence[Expr]) -> Expr:
    """Concatenate vectors into one."""
    if len(parts) == 1:
        return parts[0]
    lanes = sum(int(tvm.runtime.DataType(str(part.ty.dtype)).lanes) for part in parts)
    return tirx.Shuffle(list(parts), [tirx.const(i, "int32") for i in range(lanes)])


def _interleave_vectors(first: Expr, second: Expr, group: int, width: int, *, upper: bool) -> Expr:
    """Interleave two vectors lane by lane, the lower halves of their groups or the upper ones."""
    lanes = []
    for start in range(0, width, group):
        for lane in range(start, start + group // 2):
            lanes += [lane + upper * group // 2, width + lane + upper * group // 2]
    return tirx.Shuffle([first, second], [tirx.const(i, "int32") for i in lanes])
