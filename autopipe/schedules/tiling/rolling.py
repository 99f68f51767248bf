"""Writes the loops of convolutions that follow each other, one row of the image after the other.

Template `rolling` has an example. The three parts are written as if each had all of its result;
then the accesses between them are redirected to buffers that hold a few rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import is_among
from autopipe.schedules.analysis.expressions import (
    find_block_start,
    open_loop,
    write_element_loops,
)
from autopipe.schedules.loop_writer import job_block
from autopipe.schedules.tiling import loops
from autopipe.schedules.tiling.loops import Tiled
from autopipe.schedules.tiling.nest import TilePlace
from autopipe.schedules.tiling.windows import OpenWindows, OutputTile


@dataclass(frozen=True, slots=True)
class Border:
    """The image that windows read: the result of the first convolution, with a border around it."""

    source: tvm.ir.Var
    """Buffer of that result, [batch, height, width, channels]."""
    image: tvm.ir.Var
    """Buffer with the border; the same buffer where there is none."""
    top: int
    left: int
    value: Expr
    """The value of the border."""

    @property
    def inner(self) -> tuple[int, ...]:
        """Sizes of the result."""
        return _read_shape(self.source)

    @property
    def outer(self) -> tuple[int, ...]:
        """Sizes with the border."""
        return _read_shape(self.image)


@dataclass(frozen=True, slots=True)
class RollingLoops:
    """Writes the loops."""

    first: Tiled
    border: Border
    windows: OpenWindows
    last: Tiled | None
    """The product that follows the windows, if there is one."""
    passed: tvm.ir.Var
    """Buffer that the windows write."""
    height: int
    """Rows of the image that a window takes."""
    stride: int
    """Rows of the image from one row of the result to the next."""
    rows: int
    """Rows of the result in a job; the last job overlaps the one before it."""

    def write(self) -> tirx.Stmt:
        """Return the loop over bands of rows."""
        batch, result = self.border.inner[0], _read_shape(self.passed)[1]
        bands = -(-result // self.rows)
        buffers = self._list_read_buffers(), self.last[0].outputs if self.last else [self.passed]
        jobs = job_block("rolling", batch * bands, self._dtype, buffers, parallel=True)
        with IRBuilder() as builder, jobs as job:
            ring_shape = (self.height, *self.border.outer[2:])
            ring = T.sblock_alloc_buffer(ring_shape, self.border.image.ty.dtype)
            line = None
            if self.last is not None:
                line = T.sblock_alloc_buffer(_read_shape(self.passed)[2:], self.passed.ty.dtype)
            image = T.Bind(job // bands)
            above = T.Bind(tirx.min(job % bands * self.rows, result - self.rows))
            self._write_side_borders(ring)
            steps = (self.rows - 1) * self.stride + self.height
            with open_loop(T.serial, steps, self._dtype) as step:
                self._row(image, T.Bind(above * self.stride + step), ring)
                self._write_result_row(image, above, step)
        return self._redirect_buffers(builder.get(), ring, line)

    def _write_side_borders(self, ring: tvm.ir.Var) -> None:
        """Write the border left and right of all rows."""
        width, outer = self.border.inner[2], self.border.outer[2]
        sides = [(0, self.border.left), (self.border.left + width, outer)]
        for start, stop in sides:
            if stop > start:
                with (
                    open_loop(T.serial, self.height, self._dtype) as row,
                    open_loop(T.serial, stop - start, self._dtype) as column,
                ):
                    self._write_border_pixel(ring, row, start + column)

    def _row(self, image: Expr, row: Expr, ring: tvm.ir.Var) -> None:
        """Write a row of the image: of the first product, or of the border."""
        top, height = self.border.top, self.border.inner[1]
        if height == self.border.outer[1]:
            self._write_product_row(self.first, image, row)
            return
        with T.If(tirx.all(row >= top, row < top + height)):
            with T.Then():
                self._write_product_row(self.first, image, row - top)
            with T.Else():
                slot = T.Bind(row % self.height)
                with open_loop(T.serial, self.border.outer[2], self._dtype) as column:
                    self._write_border_pixel(ring, slot, column)

    def _write_border_pixel(self, ring: tvm.ir.Var, row: Expr, column: Expr) -> None:
        """Write a pixel of the border."""
        for channel in write_element_loops(self.border.outer[3], self.windows.width, self._dtype):
            T.buffer_store(ring, self.border.value, [row, column, channel])

    def _write_result_row(self, image: Expr, above: Expr, step: Expr) -> None:
        """Write a row of the result, if the rows of its windows are there."""
        past = step - (self.height - 1)
        ready = [past >= 0] if self.height > 1 else []
        ready += [past % self.stride == 0] if self.stride > 1 else []
        with ExitStack() as stack:
            if ready:
                stack.enter_context(T.If(tirx.all(*ready)))
                stack.enter_context(T.Then())
            row = T.Bind(above + past // self.stride)
            self._write_window_row(image, row)
            if self.last is not None:
                self._write_product_row(self.last, image, row)

    def _write_window_row(self, image: Expr, row: Expr) -> None:
        """Write a row of the windows' outputs."""
        nest, width, channels = self.windows, *_read_shape(self.passed)[2:]
        sums = T.sblock_alloc_buffer(
            (nest.rows, nest.columns), self.windows.block.body.buffer.ty.dtype, scope="local"
        )
        with (
            open_loop(T.serial, -(-width // nest.rows), self._dtype) as part,
            open_loop(T.serial, -(-channels // nest.columns), self._dtype) as strip,
        ):
            column = T.Bind(tirx.min(part * nest.rows, width - nest.rows))
            place = T.Bind(find_block_start(strip, nest.columns, channels))
            OutputTile(nest, sums, nest.rows, [image, row], column, place).write()

    def _write_product_row(self, product: Tiled, image: Expr, row: Expr) -> None:
        """Write a row of a product."""
        nest, copy = product
        last = nest.height - nest.tile.rows
        for strip, band in self._tiles(product):
            column = T.Bind(tirx.min(band * nest.tile.rows, last))
            loops.write_tile(TilePlace(nest, {0: image, 1: row}, strip, column), copy)

    def _tiles(self, product: Tiled) -> Iterator[tuple[Expr, Expr]]:
        """Write the loops over the tiles of a row; yield strip of columns and band of rows."""
        nest, _ = product
        counts = [nest.strips, -(-nest.height // nest.tile.rows)]
        by_columns = nest.tile.outer == "columns"
        outer, inner = counts if by_columns else reversed(counts)
        with (
            open_loop(T.serial, outer, self._dtype) as outer_step,
            open_loop(T.serial, inner, self._dtype) as inner_step,
        ):
            yield (outer_step, inner_step) if by_columns else (inner_step, outer_step)

    def _list_read_buffers(self) -> list[tvm.ir.Var]:
        """List the buffers that all parts read together."""
        inputs = [*loops.list_tile_inputs(*self.first), *self.windows.sources()]
        inputs += loops.list_tile_inputs(*self.last) if self.last else []
        own = [self.border.source, self.border.image, *([self.passed] if self.last else [])]
        return [buffer for buffer in inputs if not is_among(buffer, own)]

    def _redirect_buffers(
        self, loop: tirx.Stmt, ring: tvm.ir.Var, line: tvm.ir.Var | None
    ) -> tirx.Stmt:
        """Redirect the accesses between the parts to buffers of a few rows."""
        border = self.border

        def place(
            buffer: tvm.ir.Var, index: Sequence[Expr]
        ) -> tuple[tvm.ir.Var, list[Expr]] | None:
            if buffer.same_as(border.image):
                return ring, [index[1] % self.height, *index[2:]]
            if buffer.same_as(border.source):
                row = (index[1] + border.top) % self.height
                return ring, [row, index[2] + border.left, index[3]]
            if line is not None and buffer.same_as(self.passed):
                return line, list(index[2:])
            return None

        return _redirect_accesses(loop, place)

    @property
    def _dtype(self) -> str:
        return self.windows.index_dtype


def _redirect_accesses(
    loop: tirx.Stmt,
    place: Callable[[tvm.ir.Var, Sequence[Expr]], tuple[tvm.ir.Var, list[Expr]] | None],
) -> tirx.Stmt:
    """Redirect loads and stores of loops to the buffers and indices that `place` returns."""

    def read(load: TensorLoad, mutator: tvm_ffi.StructuralMutator) -> Expr:
        new = mutator.default_mutate(load)
        target = place(new.source, new.indices)
        return new if target is None else target[0][tuple(target[1])]

    def write(store: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        new = mutator.default_mutate(store)
        target = place(new.buffer, new.indices)
        return new if target is None else tirx.BufferStore(target[0], new.value, target[1])

    return tvm_ffi.structural_mutate(loop, [(TensorLoad, read), (tirx.BufferStore, write)])


def _read_shape(buffer: tvm.ir.Var) -> tuple[int, ...]:
    return tuple(map(int, buffer.ty.shape))
