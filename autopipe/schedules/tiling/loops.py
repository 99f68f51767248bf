"""Writes the loops of a tiled sum of products, as new TIR.

The primitives of TVM's schedule are not used: `split` needs a length that divides the extent, or
else tests each element. Here the last tile overlaps the one before it instead, and no test is
needed. The package's docstring shows the loops before and after.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import BufferStore
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import is_among, list_loads
from autopipe.schedules.analysis.blocks import element_bits, extent_of, number_of
from autopipe.schedules.analysis.dot_products import DotProduct
from autopipe.schedules.analysis.expressions import (
    Values,
    open_loop,
    remove_duplicates,
    replace_variables,
    to_full_region,
    write_branches,
    write_tile_loops,
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
    single = isinstance(nest.jobs, int) and nest.jobs == 1
    loop = T.parallel if parallel and not single else T.serial
    with open_loop(loop, nest.jobs, nest.index_dtype) as job, T.sblock(name):
        T.reads(*(to_full_region(buffer) for buffer in list_tile_inputs(nest, copy)))
        T.writes(*map(to_full_region, nest.outputs))
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
            values = _solve_axis_values(nest.last, [total.buffer], at)
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
    with ExitStack() as loops:
        steps = [
            loops.enter_context(open_loop(T.serial, extent, nest.index_dtype))
            for extent in (*extents, inner // unroll if unroll > 1 else inner)
        ]
        part = loops.enter_context(open_loop(T.unroll, unroll, nest.index_dtype))
        terms = [*steps[:-1], steps[-1] * unroll + part]
        if nest.tile.ahead and work.copy is not None:
            _fetch_ahead(work, work.copy, terms)
        if nest.dot is not None and work.copy is not None:
            _add_dots(work, work.copy, nest.dot, terms)
            return
        for row, column in _write_element_loops(nest, nest.tile.columns):
            after = _compute_step(work, row, column, terms)
            if len(after) > 1:  # each result depends on the former values of all
                after = [T.Bind(value) for value in after]
            for sums, value in zip(work.sums, after, strict=True):
                T.buffer_store(sums, value, [row, column])


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
        results = [
            sums[row, column]
            if sums.dtype == store.buffer.dtype
            else sums[row, column].astype(str(store.buffer.dtype))
            for sums, store in zip(work.sums, product.stores, strict=True)
        ]
        index = work.place.index(row, work.first + column)
        values: Values = list(zip(product.axes, index, strict=True))
        write_output(product.stores, nest.last, results, values)


def _count_written_columns(nest: Nest) -> int:
    """Count the columns of a tile that are written.

    A packed tile may be wider than a group: the sums past the group's end are left unwritten.
    """
    granule, columns = nest.granule, nest.tile.columns
    return min(columns, granule) if isinstance(granule, int) else columns


def write_output(
    stores: Sequence[BufferStore], last: SBlock | None, results: Sequence[Expr], values: Values
) -> None:
    """Write the results of a block that sums, or what the block after it computes from them.

    `stores` are the stores of the sums, `results` their values for `values` of the axes. Raises
    ScheduleError if the indices of the stores do not determine the last block's axes.
    """
    at = [replace_variables(index, values) for index in stores[0].indices]
    totals = [store.buffer for store in stores]
    if last is None:
        for total, value in zip(totals, results, strict=True):
            T.buffer_store(total, value, at)
        return
    values = _solve_axis_values(last, totals, at)
    value = replace_variables(last.body.value, values, _make_load_replacer(totals, results, values))
    T.buffer_store(
        last.body.buffer, value, [replace_variables(i, values) for i in last.body.indices]
    )


def _make_load_replacer(
    buffers: Sequence[tvm.ir.Var], results: Sequence[Expr], values: Values
) -> Callable[[TensorLoad], Expr]:
    """Make a function for `replace_variables` that replaces loads of buffers by `results`."""

    def replaced(read: TensorLoad) -> Expr:
        pairs = zip(buffers, results, strict=True)
        result = next((value for buffer, value in pairs if read.source.same_as(buffer)), None)
        return replace_variables(read, values) if result is None else result

    return replaced


def _solve_axis_values(last: SBlock, totals: Sequence[tvm.ir.Var], at: Sequence[Expr]) -> Values:
    """Return the values of the last block's axes for which it reads the sums at indices `at`.

    Raises ScheduleError if these indices do not determine the axes.
    """
    reads = list_loads(last.body.value)
    places = [r.indices for r in reads if is_among(r.source, totals)]
    if not places or not all(tvm_ffi.structural_equal(indices, places[0]) for indices in places):
        raise ScheduleError("the sum is not read at one place")
    read_at = places[0]
    values = []
    for axis in last.iter_vars:
        equal = [value for i, value in zip(read_at, at, strict=True) if i.same_as(axis.var)]
        if not equal and extent_of(axis.dom.extent) != 1:
            raise ScheduleError("the sum is moved")
        values.append((axis.var, (equal or [axis.dom.min])[0]))
    return values


def _write_element_loops(nest: Nest, columns: int) -> Iterator[tuple[Expr, Expr]]:
    return write_tile_loops(nest.tile.rows, columns, nest.tile.width, nest.index_dtype)


def list_tile_inputs(nest: Nest, copy: Copy | None) -> list[tvm.ir.Var]:
    """Return the buffers that a tile reads, each once."""
    operand = nest.contraction.lines.operand
    reads = [
        copy.buffer if copy and i == operand else load.source
        for i, load in enumerate(nest.product.loads)
    ]
    if nest.last is not None:
        totals = [store.buffer for store in nest.product.stores]
        output_reads = [read.source for read in list_loads(nest.last.body.value)]
        reads += [other for other in output_reads if not is_among(other, totals)]
    return remove_duplicates(reads)
