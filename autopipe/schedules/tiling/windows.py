"""Writes the loops of windows (pooling, depthwise convolutions) in tiles that overlap at the ends.

The template `window` schedules most static functions with TVM's primitives, which need tiles that
divide the extents. Here the last tile along a row overlaps the one before it, and so does the last
strip of columns; where a row of dynamic length is too short for one tile, its outputs are computed
one by one.

Example: a depthwise 3x3 convolution of [1, height, width, 96] (NHWC), tiles of 4 x 32.

    for i, strip, j in grid(height, 3, (width + 3) // 4):
        first = min(4 * j, width - 4)
        sums = zeros(4, 32)
        for r in range(3):
            line = padded x[i + r - 1, first - 1 : first + 5, strip]        # [6, 32]
            for s, n in unrolled(3, 4):
                sums[n] += line[n + s] * packed[strip, r, s, 0]
        y[i, first : first + 4, strip] = sums
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes
from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import (
    is_large_enough,
    lengths_of,
    number_of,
    parts_of,
    variables_of,
)
from autopipe.schedules.analysis.expressions import (
    Values,
    count_occurrences,
    find_block_start,
    open_loops,
    remove_repeated_loads,
    replace_variables,
    write_branches,
    write_tile_loops,
)
from autopipe.schedules.analysis.windows import Windows
from autopipe.schedules.loop_writer import job_loop, list_read_buffers, write_output

PAIR: Final = 2
"""A tile has two axes, the last ones."""

UNROLLED: Final = 512
"""Most vector operations that are unrolled."""


@dataclass(frozen=True, slots=True)
class OpenWindows:
    """Windows and the tile that their outputs are cut into."""

    windows: Windows
    """At specialized sizes."""
    block: SBlock
    """The block that reduces."""
    before: SBlock | None
    """The block that prepares its input, such as padding."""
    last: SBlock | None
    """The elementwise block behind the reduction, if there is one."""
    known: DynamicSizes
    rows: int
    """Outputs of a tile along the last but one axis."""
    columns: int
    """Outputs of a tile along the last axis; the last tile overlaps the one before it."""
    width: int
    """Elements in a vector."""
    shared: int
    """How many of the loops over tiles, from the outermost on, run in parallel."""

    def write(self, least_work: int) -> tvm.tirx.Stmt:
        """Return the loops over all tiles, in parallel from `least_work` steps of reductions on.

        Raises ScheduleError if the last axis is dynamic, or the block behind moves the outputs.
        """
        lengths = lengths_of(self.block)
        if len(lengths) < PAIR or not isinstance(lengths[-1], int):
            raise ScheduleError("the last axis is dynamic")
        length = lengths[-PAIR]
        steps = lengths_of(self.block, spatial=False)
        work = is_large_enough((*lengths, *steps), least_work, self.known)
        with IRBuilder() as builder:
            for parallel in write_branches(work):
                for fits in write_branches(is_large_enough([length], self.rows, self.known)):
                    self._write_loops(self.rows if fits else 1, parallel=parallel)
        return builder.get()

    def _write_loops(self, rows: int, *, parallel: bool) -> None:
        """Write the loops over tiles of `rows` outputs."""
        *outer, length, breadth = lengths_of(self.block)
        counts = [*outer, parts_of(breadth, self.columns), parts_of(length, rows)]
        dtype, name = self.index_dtype, f"{self.block.name_hint}_tile"
        buffers = self.sources(), [(self.last or self.block).body.buffer]
        with job_loop(name, counts[: self.shared], dtype, buffers, parallel=parallel) as job:
            sums_dtype = str(self.block.body.buffer.ty.dtype)
            sums = T.sblock_alloc_buffer((rows, self.columns), sums_dtype, scope="local")
            with open_loops(T.serial, counts[self.shared :], dtype) as inner:
                axes: list[tvm.ir.Expr] = [*job, *inner]
                *before, strip, band = axes
                row = T.Bind(tvm.tirx.min(band * rows, length - rows))
                column = T.Bind(find_block_start(strip, self.columns, breadth))
                OutputTile(self, sums, rows, before, row, column).write()

    def sources(self) -> list[Any]:
        """Return the buffers that a tile reads."""
        own_blocks = [block for block in (self.before, self.block) if block is not None]
        blocks = [*own_blocks, *([self.last] if self.last else [])]
        return list_read_buffers(
            [block.body.value for block in blocks], [block.body.buffer for block in own_blocks]
        )

    @property
    def index_dtype(self) -> str:
        """The dtype of the indices."""
        return str(self.block.iter_vars[0].var.ty.dtype)


@dataclass(frozen=True, slots=True)
class OutputTile:
    """A tile of outputs; its methods write statements."""

    nest: OpenWindows
    sums: Any
    """Buffer [rows, columns], which LLVM keeps in registers."""
    rows: int
    before: Sequence[Expr]
    """Indices along the axes before the last two."""
    row: Expr
    """The first index along the last but one axis."""
    column: Expr
    """The first index along the last axis."""

    def write(self) -> None:
        """Write the sums, from their first values on, and the outputs."""
        for row, column in self._write_element_loops(self.rows):
            T.buffer_store(self.sums, self.nest.block.init.value, [row, column])
        self._reduce()
        for row, column in self._write_element_loops(self.rows):
            results, values = [self.sums[row, column]], self._list_axis_values({}, row, column)
            write_output([self.nest.block.body], self.nest.last, results, values)

    def _reduce(self) -> None:
        """Write the loops over a window: each row of the input is read once for all outputs."""
        nest, windows = self.nest, self.nest.windows
        lengths, dtype = lengths_of(nest.block, spatial=False), nest.index_dtype
        line = self._line()
        sums = self.rows * nest.columns // nest.width
        is_dynamic = bool(nest.known.likely)  # padding by sizes is long code, and loops are as fast
        outer = {n: length for n, length in enumerate(lengths) if n not in windows.across}
        across = {axis: lengths[axis] for axis in windows.across}
        loop = T.serial if is_dynamic or sums * windows.taps > UNROLLED else T.unroll
        with open_loops(loop, outer.values(), dtype) as indices:
            steps = dict(zip(outer, indices, strict=True))
            if line is not None:
                self._read(line, steps)
            loop = T.unroll if sums * windows.taps_across <= UNROLLED else T.serial
            with open_loops(loop, across.values(), dtype) as indices_across:
                steps |= zip(across, indices_across, strict=True)
                for row, column in self._write_element_loops(self.rows):
                    value = self._update_sum(line, steps, row, column)
                    T.buffer_store(self.sums, value, [row, column])

    def _line(self) -> Any:  # noqa: ANN401 - tvm
        """Return a buffer for a row of the input, or None where outputs share no elements."""
        windows, data = self.nest.windows, self._find_input_load()
        row = variables_of(self.nest.block)[-PAIR]
        line_length = (self.rows - 1) * windows.stride + windows.reach
        if sum(count_occurrences(index, row) for index in data.indices) != 1 or line_length <= 1:
            return None
        if line_length > self.rows * windows.taps_across:  # some elements are in no window
            return None
        shape = (line_length, self.nest.columns)
        return T.sblock_alloc_buffer(shape, str(data.source.ty.dtype), scope="local")

    def _read(self, line: Any, steps: dict[int, Expr]) -> None:  # noqa: ANN401 - tvm
        """Write a row of the input into registers."""
        zero = number_of(0, self.nest.index_dtype)
        steps = {**steps, **dict.fromkeys(self.nest.windows.across, zero)}
        row = variables_of(self.nest.block)[-PAIR]
        data = self._find_input_load()
        for place, column in self._write_element_loops(int(line.ty.shape[0])):
            values = self._list_axis_values(steps, zero, column)
            index = [
                replace_variables(part, values) + (place if count_occurrences(part, row) else 0)
                for part in data.indices
            ]
            T.buffer_store(line, self._load_element(data, index), [place, column])

    def _update_sum(self, line: Any, steps: dict[int, Expr], row: Expr, column: Expr) -> Expr:  # noqa: ANN401 - tvm
        """Return a sum with one more element of its window."""
        total, data = self.nest.block.body, self._find_input_load()
        values = self._list_axis_values(steps, row, column)

        def load(read: TensorLoad) -> Expr:
            if read.source.same_as(total.buffer):
                return self.sums[row, column]
            if not tvm_ffi.structural_equal(read, data):
                return replace_variables(read, values)
            if line is not None:
                return line[self._find_line_position(steps, row), column]
            return self._load_element(
                data, [replace_variables(part, values) for part in data.indices]
            )

        return replace_variables(total.value, values, load)

    def _find_line_position(self, steps: dict[int, Expr], row: Expr) -> Expr:
        """Return the position in a row of the input that a step of a window reads."""
        zero = number_of(0, self.nest.index_dtype)
        at_start = {**steps, **dict.fromkeys(self.nest.windows.across, zero)}
        variable = variables_of(self.nest.block)[-PAIR]
        part = next(
            part for part in self._find_input_load().indices if count_occurrences(part, variable)
        )
        position, first = (
            replace_variables(part, self._list_axis_values(at, place, zero))
            for at, place in ((steps, row), (at_start, zero))
        )
        return Analyzer().simplify(position - first)

    def _find_input_load(self) -> TensorLoad:
        """Return the load of the input. Raises ScheduleError if there are several."""
        nest = self.nest
        loads = [
            load
            for load in list_loads(nest.block.body.value)
            if not load.source.same_as(nest.block.body.buffer)
        ]
        if nest.before is not None:
            loads = [load for load in loads if load.source.same_as(nest.before.body.buffer)]
        elif nest.windows.weights is not None:
            weights = nest.block.reads[nest.windows.weights].source
            loads = [load for load in loads if not load.source.same_as(weights)]
        loads = remove_repeated_loads(loads)
        if len(loads) != 1:
            raise ScheduleError("the windows read several tensors")
        return loads[0]

    def _load_element(self, data: TensorLoad, index: Sequence[Expr]) -> Expr:
        """Return an element of the input, computed in place where a block prepares it."""
        producer = self.nest.before
        if producer is None:
            return data.source[tuple(index)]
        axes = [axis.var for axis in producer.iter_vars]
        if not all(at.same_as(axis) for at, axis in zip(producer.body.indices, axes, strict=True)):
            raise ScheduleError("the input is moved")
        return replace_variables(producer.body.value, list(zip(axes, index, strict=True)))

    def _list_axis_values(self, steps: dict[int, Expr], row: Expr, column: Expr) -> Values:
        """Return the values of the axes of the reduction."""
        spatial, window = (variables_of(self.nest.block, spatial=kind) for kind in (True, False))
        place = [*self.before, self.row + row, self.column + column]
        return [
            *zip(spatial, place, strict=True),
            *((window[axis], step) for axis, step in steps.items()),
        ]

    def _write_element_loops(self, rows: int) -> Iterator[tuple[Expr, Expr]]:
        return write_tile_loops(rows, self.nest.columns, self.nest.width, self.nest.index_dtype)
