"""Writes loops and blocks as new TIR. An IRBuilder must be open."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.ir import Expr, Var
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import (
    Extent,
    element_bits,
    extent_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    open_loop,
    remove_duplicates,
    to_full_region,
    unravel_index,
)


@contextmanager
def job_loop(
    name: str, extents: Sequence[Extent], dtype: str,
    buffers: tuple[Sequence[Var], Sequence[Var]], *, parallel: bool,
) -> Iterator[list[Expr]]:  # fmt: skip
    """Write one fused loop over several axes, serial or parallel, around a block.

    `buffers` are those that the block reads, and those that it writes. Yields the index along each
    axis, of `dtype`.
    """
    count = product_of(extents)
    loop = T.parallel if parallel and count != 1 else T.serial
    read_buffers, write_buffers = buffers
    with open_loop(loop, count, dtype) as job, T.sblock(name):
        T.reads(*map(to_full_region, remove_duplicates(read_buffers)))
        T.writes(*map(to_full_region, remove_duplicates(write_buffers)))
        yield [T.Bind(index) for index in unravel_index(extents, job, job=True)]


@contextmanager
def element_block(name: str, sizes: Sequence[Expr]) -> Iterator[list[Expr]]:
    """Write a loop over each axis, and a block in them; yield the axes of the block."""
    with T.grid(*sizes) as loops, T.sblock(name):
        pairs = zip(sizes, as_list(loops), strict=True)
        yield [T.axis.spatial(size, loop) for size, loop in pairs]


def store_element(place: Any, value: Expr) -> None:  # noqa: ANN401 - a load
    """Write the store of a block at a place, and its reads and writes."""
    T.reads(*(load.source[tuple(load.indices)] for load in list_loads(value)))
    T.writes(place)
    T.buffer_store(place.source, value, list(place.indices))


def as_list(loops: Any) -> list[Var]:  # noqa: ANN401 - what TVM yields
    """Return the variables of `T.grid`, which yields a single variable without a list."""
    return [loops] if isinstance(loops, tirx.Var) else list(loops)


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
