"""Template for RoiAlign: cells of regions of an image, whose channels come last.

An attribute of the function names the operation, and is trusted only if the reference loops of that
operation equal the loops of the function. Sample positions are computed once for all channels, and
a row of cells is transposed in the cache, since the cells of a channel are contiguous in the
result.

Example: the mean of 2 x 2 samples in each of 7 x 7 cells, 128 channels, vectors of 16.

    for region, row in parallel(regions, 7):
        for cell in range(7):
            for chunk in range(2):                        # 64 channels: 4 registers
                sums[0:64] = 0
                for i, j in grid(2, 2):
                    (y0, y1), (x0, x1), shares = ...      # four pixels around the sample
                    sums[0:64] += shares[0] * image[y0, x0, 64 * chunk : 64 * chunk + 64] + ...
                line[cell, 64 * chunk : 64 * chunk + 64] = sums / 4
        for channel, cell in grid(128, 7):
            y[region, channel, row, cell] = line[cell, channel]
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.roi_align import (
    ATTRIBUTE,
    RegionForm,
    SampleGrid,
    build_regions,
    clamp_image_index,
    list_corners,
    parse_form,
)
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import (
    extent_of,
    has_reference_loops,
    is_large_enough,
    tensors_of,
)
from autopipe.schedules.analysis.expressions import write_branches
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.loop_writer import job_loop
from autopipe.schedules.parallel_work import ELEMENTS
from autopipe.schedules.primitives import rewrite_function
from autopipe.schedules.templates.template import Template

# ruff: noqa: ANN401  what TVM has no types for


_DTYPES: Final = {"float32": 32, "float64": 64}
_INDEX_DTYPES: Final = (None, "int64")
_VECTORS: Final = (4, 8, 2, 1)
"""Registers that sums may take, in the order they are proposed."""


@dataclass(frozen=True, slots=True)
class RegionCells:
    """A matched function: its form, its channels and the size of its elements."""

    form: RegionForm
    channels: int
    bits: int
    """Size of an element, in bits."""


@dataclass(frozen=True, slots=True)
class ChannelChunk:
    """The knobs."""

    width: int
    """Channels in a vector."""
    vectors: int
    """Vectors that are summed at a time."""


class RegionsTemplate(Template[RegionCells, ChannelChunk]):
    """Pooling of data-dependent regions: RoiAlign and MaxRoiPool."""

    name = "regions"
    version = schedule_version("regions")
    serves_dynamic = True

    def match(self, sch: Schedule) -> RegionCells | None:
        """Match the function, or return None if the template does not apply."""
        function = sch.mod["main"]
        form = parse_form(str((function.attrs or {}).get(ATTRIBUTE, "")))
        tensors = tensors_of(function)
        if form is None or len(tensors) != _ARGUMENTS:
            return None
        data = tensors[0]
        channels = extent_of(data.shape[-1]) if len(data.shape) == _ARGUMENTS else None
        if (
            not isinstance(channels, int)
            or str(data.dtype) not in _DTYPES
            or not has_reference_loops(function, partial(build_regions, form), _INDEX_DTYPES)
        ):
            return None
        return RegionCells(form, channels, _DTYPES[str(data.dtype)])

    def settings(self, match: RegionCells, hardware: HardwareParams) -> Iterator[ChannelChunk]:
        """Yield vectors of one register and of half a register, in several numbers."""
        lanes = hardware.lanes(match.bits)
        for width in (lanes, lanes // 2):
            for vectors in _VECTORS:
                if width and (vectors == 1 or vectors * width <= match.channels):
                    yield ChannelChunk(width, vectors)

    def apply(self, sch: Schedule, match: RegionCells, knobs: ChannelChunk) -> None:
        """Schedule the function."""
        data, boxes, images, out = tensors_of(sch.mod["main"])
        with IRBuilder() as builder:
            loops = _RegionLoops(match, knobs, data, boxes, images, out)
            for parallel in write_branches(is_large_enough(map(extent_of, out.shape), ELEMENTS)):
                loops.write(parallel=parallel)
        rewrite_function(sch, builder.get(), [])


REGIONS: Final = RegionsTemplate()


_ARGUMENTS: Final = 4
"""Images, corners, the image of each region, and the result; an image has as many axes."""


def _bind_once(value: Expr) -> Expr:
    """Compute a value once; a float in a buffer, as TVM's analysis fails on bound floats."""
    dtype = str(value.ty.dtype)
    if not dtype.startswith("float"):
        return T.Bind(value)
    place = T.alloc_buffer((1,), dtype, scope="local")
    T.buffer_store(place, value, [0])
    return place[0]


@dataclass(frozen=True, slots=True)
class _RegionLoops:
    """Writes the loops. An IRBuilder must be open."""

    match: RegionCells
    knobs: ChannelChunk
    data: Any
    boxes: Any
    images: Any
    out: Any

    def write(self, *, parallel: bool) -> None:
        """Write the loops over rows of cells."""
        high, wide = self.match.form.cells
        jobs = extent_of(self.out.shape[0]), high
        tensors = (self.data, self.boxes, self.images), (self.out,)
        dtype = str(self.out.shape[0].ty.dtype)
        with job_loop("regions", jobs, dtype, tensors, parallel=parallel) as (region, row):
            line = T.alloc_buffer((wide, self.match.channels), self.data.dtype)
            shape = self.data.shape
            corners = [self.boxes[region, number] for number in range(4)]
            grid = SampleGrid.of(self.match.form, shape, corners, _bind_once, self.data.dtype)
            image = T.Bind(clamp_image_index(self.images, region, shape[0]))
            with T.serial(0, wide) as cell:
                for first, width, vectors in self._write_chunk_loops():
                    self._write_cell(grid, (image, row, cell), (first, width, vectors), line)
            with T.serial(0, self.match.channels) as channel, T.unroll(0, wide) as cell:
                T.buffer_store(self.out, line[cell, channel], [region, channel, row, cell])

    def _write_chunk_loops(self) -> Iterator[tuple[Expr, int, int]]:
        """Write loops over chunks of channels; yield (first channel, vector width, vectors)."""
        channel, width, vectors = 0, self.knobs.width, self.knobs.vectors
        while channel < self.match.channels:
            chunk = width * vectors
            count = (self.match.channels - channel) // chunk
            if count:
                with T.serial(0, count) as at:
                    yield channel + at * chunk, width, vectors
            channel += count * chunk
            width, vectors = (width, vectors // 2) if vectors > 1 else (width // 2, 1)

    def _write_cell(
        self, grid: SampleGrid, at: Sequence[Expr], chunk: tuple[Expr, int, int], line: Any
    ) -> None:
        """Write the loops over the samples of a cell, for a chunk of channels."""
        (image, row, cell), (first, width, vectors) = at, chunk
        mode, work = self.match.form.mode, self.data.dtype
        sums = T.alloc_buffer((vectors * width,), work, scope="local")
        zero = tirx.const(0, work)
        start = tvm.tirx.min_value(work) if mode == "max" else zero

        def each(store: Callable[[Any], None]) -> None:
            with T.unroll(0, vectors) as vector, T.vectorized(0, width) as lane:
                store(vector * width + lane)

        each(lambda lane: T.buffer_store(sums, start, [lane]))
        with T.serial(0, grid.loops[0]) as sample_row:
            row_sample = grid.place(0, row, sample_row, _bind_once)
            with T.serial(0, grid.loops[1]) as sample_column:
                column_sample = grid.place(1, cell, sample_column, _bind_once)
                pixels = list_corners((row_sample, column_sample), _bind_once)

                def add(lane: Any) -> None:
                    for y, x, share in pixels:
                        value = self.data[image, y, x, first + lane] * share
                        total = sums[lane] + value
                        total = tirx.max(sums[lane], value) if mode == "max" else total
                        T.buffer_store(sums, total, [lane])

                def nothing(lane: Any) -> None:
                    T.buffer_store(sums, tirx.max(sums[lane], zero), [lane])

                with T.If(tirx.all(row_sample.inside, column_sample.inside)):
                    with T.Then():
                        each(add)
                    if mode == "max":
                        with T.Else():
                            each(nothing)

        def end(lane: Any) -> None:
            value = sums[lane] if mode == "max" else sums[lane] / grid.count
            T.buffer_store(line, value, [cell, first + lane])

        each(end)
