"""Writes the loops of a tiled sum of products, as new TIR.

The primitives of TVM's schedule are not used: `split` needs a length that divides the extent, or
else tests each element. Here the last tile overlaps the one before it instead, and no test is
needed. The package's docstring shows the loops before and after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm.ir import Expr, TensorLoad
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.blocks import element_bits, number_of
from autopipe.schedules.analysis.dot_products import DotProduct
from autopipe.schedules.analysis.expressions import (
    Values,
    open_loop,
    open_loops,
    replace_variables,
    write_branches,
    write_tile_loops,
)
from autopipe.schedules.loop_writer import (
    job_block,
    list_read_buffers,
    solve_axis_values,
    store_results,
    write_output,
)
from autopipe.schedules.tiling import fetching
from autopipe.schedules.tiling.lines import is_shared
from autopipe.schedules.tiling.nest import Nest, TilePlace
from autopipe.schedules.tiling.packing import Copy


@dataclass(frozen=True, slots=True)
class _Work:
    """What the statements of one tile are written from."""

    place: TilePlace
    copy: Copy | None
    """The copy that the operand along the columns is read from; None reads it in place."""
    sums: Sequence[tvm.ir.Var]
    """Buffers [rows, columns] of the sums of the tile, which LLVM keeps in registers: one, or one
    for each result."""
    first: Expr
    """The first column of the tile."""


Tiled = tuple[Nest, Copy | None]
"""A nest, and the copy that the operand along its columns is read from."""


def build_tile_loops(nests: Sequence[Tiled], parallel: bool | Expr) -> tvm.tirx.Stmt:  # noqa: FBT001 - a condition
    """Return the loop over all tiles, in parallel where that pays: a condition for dynamic shapes.

    With dynamic shapes there may be no whole tile: then the next of `nests` is taken, and the last
    one always fits. Raises ScheduleError if a block behind the sum reads it at another index than
    it writes.
    """
    with IRBuilder() as builder:
        for spread in write_branches(parallel):
            _write_fitting_loop(nests, parallel=spread)
    return builder.get()


def _write_fitting_loop(nests: Sequence[Tiled], *, parallel: bool) -> None:
    (nest, copy), *smaller_tiles = nests
    if nest.fits is None or not smaller_tiles:
        _write_tile_loop(nest, copy, parallel=parallel, name=f"{nest.contraction.name}_tile")
        return
    with T.If(nest.fits):
        with T.Then():
            _write_tile_loop(nest, copy, parallel=parallel, name=f"{nest.contraction.name}_tile")
        with T.Else():
            _write_fitting_loop(smaller_tiles, parallel=parallel)


def _write_tile_loop(nest: Nest, copy: Copy | None, *, parallel: bool, name: str) -> None:
    """Write the loop over the tiles of one size."""
    buffers = list_tile_inputs(nest, copy), nest.outputs
    with job_block(name, nest.jobs, nest.index_dtype, buffers, parallel=parallel) as job:
        write_tile(nest.place(job), copy)


def write_tile(place: TilePlace, copy: Copy | None) -> None:
    """Write the computation of one tile's outputs into the open block."""
    nest = place.nest
    shape = nest.tile.rows, nest.tile.columns
    dtypes = nest.product.dtypes
    sums = [T.sblock_alloc_buffer(shape, dtype, scope="local") for dtype in dtypes]
    work = _Work(place, copy, sums, T.Bind(nest.column(place.strip)))
    if nest.tile.fetched:
        _prefetch_outputs(work)
    _initialize_sums(work)
    _write_sums(work)
    _write_outputs(work)


def _prefetch_outputs(work: _Work) -> None:
    """Prefetch the outputs of `_write_outputs`, and inputs as large as these, such as a residual.

    Columns lie in memory one after the other, so that one element of a line stands for all.
    """
    nest, total = work.place.nest, work.place.nest.product.block.body
    with open_loop(T.unroll, nest.tile.rows, nest.index_dtype) as row:
        for column in range(
            0, _count_written_columns(nest), fetching.count_line_elements(nest.contraction.bits)
        ):
            index = work.place.index(row, work.first + column)
            values: Values = list(zip(nest.product.axes, index, strict=True))
            at = [replace_variables(part, values) for part in total.indices]
            if nest.last is None:
                fetching.prefetch_write(total.buffer, at)
                continue
            values = solve_axis_values(nest.last, [total.buffer], at)
            for read in fetching.find_residuals(nest.last, total.buffer):
                fetching.prefetch_read(replace_variables(read, values))
            store = nest.last.body
            fetching.prefetch_write(
                store.buffer, [replace_variables(i, values) for i in store.indices]
            )


def _initialize_sums(work: _Work) -> None:
    """Write the first values of the sums, which are zeros."""
    nest = work.place.nest
    for row, column in _write_element_loops(nest, nest.tile.columns):
        for sums, start in zip(work.sums, nest.product.starts, strict=True):
            T.buffer_store(sums, start, [row, column])


def _write_sums(work: _Work) -> None:
    """Write the loops over the terms; the innermost loop is unrolled `tile.unroll` times."""
    nest, unroll = work.place.nest, work.place.nest.tile.unroll
    *extents, inner = nest.steps
    extents.append(inner // unroll if unroll > 1 else inner)
    with (
        open_loops(T.serial, extents, nest.index_dtype) as steps,
        open_loop(T.unroll, unroll, nest.index_dtype) as part,
    ):
        terms = [*steps[:-1], steps[-1] * unroll + part]
        if nest.tile.ahead and work.copy is not None:
            _fetch_ahead(work, work.copy, terms)
        if nest.dot is not None and work.copy is not None:
            _add_dots(work, work.copy, nest.dot, terms)
            return
        for row, column in _write_element_loops(nest, nest.tile.columns):
            after = _compute_step(work, row, column, terms)
            store_results(work.sums, [row, column], after)


def _fetch_ahead(work: _Work, copy: Copy, terms: Sequence[Expr]) -> None:
    """Prefetch the packed weights that are read `tile.ahead` steps later."""
    place, tile = work.place, work.place.nest.tile
    later = [*terms[:-1], terms[-1] + tile.ahead]
    index = place.index(number_of(0, place.nest.index_dtype), work.first)
    line = fetching.count_line_elements(element_bits(copy.buffer.ty.dtype))
    for column in range(0, copy.width, line):
        at = number_of(column, place.nest.index_dtype)
        fetching.prefetch_read(copy.element(index, place.strip, later, at))


def _add_dots(work: _Work, copy: Copy, dot: DotProduct, terms: Sequence[Expr]) -> None:
    """Add some products to each sum by an instruction, a vector of sums at a time."""
    nest, place, (sums,) = work.place.nest, work.place, work.sums
    input_load = nest.product.loads[1 - nest.contraction.lines.operand]
    at = [*terms[:-1], terms[-1] * dot.group]
    with (
        open_loop(T.unroll, nest.tile.rows, nest.index_dtype) as row,
        open_loop(T.unroll, nest.tile.columns // dot.lanes, nest.index_dtype) as vector,
    ):
        column = vector * dot.lanes
        index = place.index(row, work.first + column)
        values = list(zip([*nest.product.axes, *nest.product.sums], [*index, *at], strict=True))
        *before, first = (replace_variables(part, values) for part in input_load.indices)
        input_terms = input_load.source[(*before, tvm.tirx.Ramp(first, 1, dot.group))]
        pairs = tvm.tirx.Ramp(column * dot.group, 1, dot.lanes * dot.group)
        weights = copy.element(index, place.strip, terms, pairs)
        lanes = tvm.tirx.Ramp(column, 1, dot.lanes)
        value = dot.added(sums[row, lanes], tvm.tirx.reinterpret("int32", input_terms), weights)
        T.buffer_store(sums, value, [row, lanes])


def _compute_step(work: _Work, row: Expr, column: Expr, terms: Sequence[Expr]) -> list[Expr]:
    """Return the new sums at a row and column of the tile, one for each result."""
    place, product, lines = work.place, work.place.nest.product, work.place.nest.contraction.lines
    index = place.index(row, work.first + column)
    group = place.index(row, place.nest.group(place.strip))
    sum_values = list(zip(product.sums, terms, strict=True))
    element_values, group_values = (
        list(zip(product.axes, at, strict=True)) + sum_values for at in (index, group)
    )

    def load(read: TensorLoad) -> Expr:
        if work.copy is not None and product.is_load(read, lines.operand):
            return work.copy.element(index, place.strip, terms, column)
        column_axis = product.axes[lines.columns[-1]]
        return replace_variables(
            read, group_values if is_shared(read, column_axis, lines.granule) else element_values
        )

    now = [sums[row, column] for sums in work.sums]
    if product.reducer is not None:
        return product.reducer.step(now, element_values, load)
    return [now[0] + replace_variables(product.term, element_values, load)]


def _write_outputs(work: _Work) -> None:
    """Write the outputs of the tile: the sums, or what the last block computes from them."""
    nest, product = work.place.nest, work.place.nest.product
    for row, column in _write_element_loops(nest, _count_written_columns(nest)):
        results = [sums[row, column] for sums in work.sums]
        index = work.place.index(row, work.first + column)
        values: Values = list(zip(product.axes, index, strict=True))
        write_output(product.stores, nest.last, results, values)


def _count_written_columns(nest: Nest) -> int:
    """Count the columns of a tile that are written.

    A packed tile may be wider than a group: the sums past the group's end are left unwritten.
    """
    granule, columns = nest.granule, nest.tile.columns
    return min(columns, granule) if isinstance(granule, int) else columns


def _write_element_loops(nest: Nest, columns: int) -> Iterator[tuple[Expr, Expr]]:
    return write_tile_loops(nest.tile.rows, columns, nest.tile.width, nest.index_dtype)


def list_tile_inputs(nest: Nest, copy: Copy | None) -> list[tvm.ir.Var]:
    """Return the buffers that a tile reads."""
    operand = nest.contraction.lines.operand
    reads = [
        copy.buffer if copy and i == operand else load.source
        for i, load in enumerate(nest.product.loads)
    ]
    if nest.last is not None:
        totals = [store.buffer for store in nest.product.stores]
        reads += list_read_buffers([nest.last.body.value], totals)
    return reads
