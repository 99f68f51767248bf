"""Writes the loops of a tiled sum of products.

Written out rather than made with primitives of the schedule: those can split an axis only into
equal parts, or else test each element, while the last of these tiles overlaps the one before it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.expressions import Values, elements, loads_of, substitute, whole
from autopipe.schedules.tiling.lines import is_shared
from autopipe.schedules.tiling.nest import Nest, Place
from autopipe.schedules.tiling.packing import Copy


@dataclass(frozen=True, slots=True)
class _Work:
    """What is written for a tile."""

    place: Place
    copy: Copy | None
    """Where the operand along the columns is read, if not in place."""
    sums: tvm.ir.Var
    """The sums of the tile, which LLVM keeps in registers."""
    first: Expr
    """The first column."""


def write(nest: Nest, copy: Copy | None, *, parallel: bool) -> tvm.tirx.Stmt:
    """Return the loops over all tiles. Raises ScheduleError if what follows moves the sums."""
    loop = T.parallel if parallel and nest.jobs > 1 else T.serial
    name = f"{nest.found.name}_tile"
    with (
        IRBuilder() as builder,
        loop(nest.number(0), nest.number(nest.jobs)) as job,
        T.sblock(name),
    ):
        T.reads(*(whole(buffer) for buffer in _sources(nest, copy)))
        T.writes(whole(nest.output))
        shape, dtype = (nest.tile.rows, nest.tile.columns), nest.product.block.body.buffer.ty.dtype
        sums = T.sblock_alloc_buffer(shape, str(dtype), scope="local")
        place = nest.place(job)
        work = _Work(place, copy, sums, T.Bind(nest.column(place.strip)))
        _clear(work)
        _sum(work)
        _finish(work)
    return builder.get()


def _clear(work: _Work) -> None:
    nest = work.place.nest
    for row, column in _elements(nest, nest.tile.columns):
        T.buffer_store(work.sums, nest.product.block.init.value, [row, column])


def _sum(work: _Work) -> None:
    nest, unroll = work.place.nest, work.place.nest.tile.unroll
    *extents, inner = nest.found.terms
    with ExitStack() as loops:
        steps = [
            loops.enter_context(T.serial(nest.number(0), nest.number(extent)))
            for extent in (*extents, inner // unroll)
        ]
        part = loops.enter_context(T.unroll(nest.number(0), nest.number(unroll)))
        terms = [*steps[:-1], steps[-1] * unroll + part]
        for row, column in _elements(nest, nest.tile.columns):
            value = work.sums[row, column] + _term(work, row, column, terms)
            T.buffer_store(work.sums, value, [row, column])


def _term(work: _Work, row: Expr, column: Expr, terms: Sequence[Expr]) -> Expr:
    """Return what is summed for an output of the tile."""
    place, product, lines = work.place, work.place.nest.product, work.place.nest.found.lines
    index = place.index(row, work.first + column)
    group = place.index(row, place.nest.group(place.strip))
    summed = list(zip(product.sums, terms, strict=True))
    usual, shared = (list(zip(product.axes, at, strict=True)) + summed for at in (index, group))

    def load(read: TensorLoad) -> Expr:
        if work.copy is not None and read.same_as(product.loads[lines.operand]):
            return work.copy.element(index, place.strip, terms, column)
        column_axis = product.axes[lines.columns[-1]]
        return substitute(read, shared if is_shared(read, column_axis, lines.granule) else usual)

    return substitute(product.term, usual, load)


def _finish(work: _Work) -> None:
    """Write what follows the sum, for the tile."""
    nest, product = work.place.nest, work.place.nest.product
    total, last = product.block.body, nest.last
    for row, column in _elements(nest, min(nest.tile.columns, nest.found.lines.granule)):
        done = work.sums[row, column]
        index = work.place.index(row, work.first + column)
        values: Values = list(zip(product.axes, index, strict=True))
        at = [substitute(part, values) for part in total.indices]
        if last is None:
            T.buffer_store(total.buffer, done, at)
            continue
        values = _followed(last, total.buffer, at)
        value = substitute(last.body.value, values, _replacing(total.buffer, done, values))
        T.buffer_store(last.body.buffer, value, [substitute(i, values) for i in last.body.indices])


def _replacing(buffer: tvm.ir.Var, value: Expr, values: Values) -> Callable[[TensorLoad], Expr]:
    return lambda read: value if read.source.same_as(buffer) else substitute(read, values)


def _followed(last: SBlock, total: tvm.ir.Var, at: Sequence[Expr]) -> Values:
    """Return the values of a block's axes where it reads the sum at some indices.

    Raises ScheduleError if that does not tell them.
    """
    every = [read.indices for read in loads_of(last.body.value) if read.source.same_as(total)]
    if not every or not all(tvm_ffi.structural_equal(indices, every[0]) for indices in every):
        raise ScheduleError("the sum is not read at one place")
    first = every[0]
    values = []
    for axis in last.iter_vars:
        known = [value for i, value in zip(first, at, strict=True) if i.same_as(axis.var)]
        if not known and int(axis.dom.extent) > 1:
            raise ScheduleError("the sum is moved")
        values.append((axis.var, (known or [axis.dom.min])[0]))
    return values


def _elements(nest: Nest, columns: int) -> Iterator[tuple[Expr, Expr]]:
    """Write loops over the elements of a tile; yield each row and column."""
    with T.unroll(nest.number(0), nest.number(nest.tile.rows)) as row:
        for column in elements(columns, nest.tile.width, nest.number, unroll=True):
            yield row, column


def _sources(nest: Nest, copy: Copy | None) -> list[tvm.ir.Var]:
    """Return the buffers that a tile reads."""
    ours = nest.found.lines.operand
    reads = [
        copy.buffer if copy and i == ours else load.source
        for i, load in enumerate(nest.product.loads)
    ]
    if nest.last is not None:
        total = nest.product.block.body.buffer
        others = [read.source for read in loads_of(nest.last.body.value)]
        reads += [other for other in others if not other.same_as(total)]
    return [read for i, read in enumerate(reads) if not any(read.same_as(r) for r in reads[:i])]
