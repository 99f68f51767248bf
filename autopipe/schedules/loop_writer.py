"""Writes loops and blocks as new TIR. An IRBuilder must be open."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var
from tvm.s_tir import SBlock, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import BufferStore
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import is_among, list_loads
from autopipe.compiler.graph.weights import MARK
from autopipe.schedules.analysis.blocks import (
    Extent,
    element_bits,
    extent_of,
    number_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    Values,
    open_loop,
    open_loops,
    remove_duplicates,
    replace_variables,
    to_full_region,
    unravel_index,
)

Accesses = tuple[Sequence[Var], Sequence[Var]]
"""The buffers that a block reads, and those that it writes."""


@contextmanager
def job_block(
    name: str, count: Extent, dtype: str, buffers: Accesses, *, parallel: bool
) -> Iterator[Expr]:
    """Write a loop, serial or parallel, around a block; yield its index, of `dtype`."""
    loop = T.parallel if parallel and count != 1 else T.serial
    read_buffers, write_buffers = buffers
    with open_loop(loop, count, dtype) as job, T.sblock(name):
        T.reads(*map(to_full_region, remove_duplicates(read_buffers)))
        T.writes(*map(to_full_region, remove_duplicates(write_buffers)))
        yield job


@contextmanager
def job_loop(
    name: str, extents: Sequence[Extent], dtype: str, buffers: Accesses, *, parallel: bool
) -> Iterator[list[Expr]]:
    """Write the loop of `job_block` over several axes; yield the index along each axis."""
    with job_block(name, product_of(extents), dtype, buffers, parallel=parallel) as job:
        yield [T.Bind(index) for index in unravel_index(extents, job, job=True)]


@contextmanager
def element_block(name: str, extents: Sequence[int], dtype: str) -> Iterator[list[Expr]]:
    """Write a loop over each axis, and a block in them; yield the axes of the block, of `dtype`."""
    with open_loops(T.serial, extents, dtype) as loops, T.sblock(name):
        pairs = zip(extents, loops, strict=True)
        yield [T.axis.spatial(number_of(extent, dtype), loop) for extent, loop in pairs]


def store_element(place: Any, value: Expr) -> None:  # noqa: ANN401 - a load
    """Write the store of a block at a place, and its reads and writes."""
    T.reads(*(load.source[tuple(load.indices)] for load in list_loads(value)))
    T.writes(place)
    T.buffer_store(place.source, value, list(place.indices))


def write_store(
    store: BufferStore, values: Values, load: Callable[[TensorLoad], Expr | None] = lambda _: None
) -> None:
    """Write a store for some values of its variables; `load` is that of `replace_variables`."""
    value = replace_variables(store.value, values, load)
    T.buffer_store(store.buffer, value, [replace_variables(i, values) for i in store.indices])


def store_results(sums: Sequence[Any], at: Sequence[Any], after: Sequence[Expr]) -> None:
    """Write the stores of the results of a step at an index."""
    if len(after) > 1:  # each result depends on the former values of all
        after = [T.Bind(value) for value in after]
    for buffer, value in zip(sums, after, strict=True):
        T.buffer_store(buffer, value, at)


def write_output(
    stores: Sequence[BufferStore], last: SBlock | None, results: Sequence[Expr], values: Values
) -> None:
    """Write the results of a block that sums, or what the block after it computes from them.

    `stores` are the stores of the sums, `results` their values for `values` of the axes, which may
    be of another dtype. Raises ScheduleError if the indices of the stores do not determine the last
    block's axes.
    """
    at = [replace_variables(index, values) for index in stores[0].indices]
    totals, dtypes = zip(*((s.buffer, str(s.buffer.ty.dtype)) for s in stores), strict=True)
    results = [
        value if str(value.ty.dtype) == dtype else value.astype(dtype)
        for value, dtype in zip(results, dtypes, strict=True)
    ]
    if last is None:
        for total, value in zip(totals, results, strict=True):
            T.buffer_store(total, value, at)
        return
    values = solve_axis_values(last, totals, at)

    def load(read: TensorLoad) -> Expr | None:
        pairs = zip(totals, results, strict=True)
        return next((value for total, value in pairs if read.source.same_as(total)), None)

    write_store(last.body, values, load)


def solve_axis_values(last: SBlock, totals: Sequence[Var], at: Sequence[Expr]) -> Values:
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


def write_packed_copy(
    name: str, buffer: Var, locate: Callable[[list[Expr]], Expr], *, free: bool
) -> tirx.Stmt:
    """Return the loops that copy an operand into a buffer of another layout.

    `locate` returns the load of the operand for an index of the buffer. The build runs the copy of
    an operand whose layout is `free`.
    """
    shape, dtype = list(buffer.ty.shape), str(buffer.ty.shape[0].ty.dtype)
    with IRBuilder() as builder, T.grid(*shape) as loops, T.sblock(name):
        index = list(T.axis.remap("S" * len(shape), list(loops), dtype=dtype))
        value = locate(index)
        T.reads(value)
        T.writes(buffer[tuple(index)])
        if free:
            T.sblock_attr({MARK: True})
        T.buffer_store(buffer, value, index)
    return builder.get()


def list_read_buffers(values: Iterable[Any], own: Sequence[Var] = ()) -> list[Var]:
    """List the buffers that expressions load from, other than the ones that a nest computes."""
    sources = [load.source for value in values for load in list_loads(value)]
    return [source for source in sources if not is_among(source, own)]


class FlatViews:
    """Flat one-dimensional views of tensors: the same memory by another name."""

    def __init__(self, tensors: Sequence[Var], *, as_integers: bool = False) -> None:
        """Create the views; `as_integers` takes elements for integers of their size."""
        self.tensors = remove_duplicates(tensors)
        self._views = []
        for tensor in self.tensors:
            size, dtype = product_of(map(extent_of, tensor.shape)), str(tensor.dtype)
            dtype = f"int{element_bits(dtype)}" if as_integers else dtype
            name = f"{tensor.name}_row"
            self._views.append(tirx.decl_buffer((size,), dtype, name, tensor.data, layout=None))

    def of(self, tensor: Var) -> Var:
        """Return the view of a tensor."""
        pairs = zip(self.tensors, self._views, strict=True)
        return next(view for one, view in pairs if one.same_as(tensor))

    def declare(self) -> list[tirx.Stmt]:
        """Return the statements that declare the views."""
        pairs = zip(self.tensors, self._views, strict=True)
        return [tirx.DeclBuffer(view, data=tensor.data) for tensor, view in pairs]
