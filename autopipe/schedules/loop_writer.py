"""Writes loops and blocks as new TIR. An IRBuilder must be open."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.ir import Expr, Var
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.schedules.analysis.blocks import Extent, number_of, product_of
from autopipe.schedules.analysis.expressions import (
    loads_of,
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
    with loop(number_of(0, dtype), number_of(count, dtype)) as job, T.sblock(name):
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
    T.reads(*(load.source[tuple(load.indices)] for load in loads_of(value)))
    T.writes(place)
    T.buffer_store(place.source, value, list(place.indices))


def as_list(loops: Any) -> list[Var]:  # noqa: ANN401 - what TVM yields
    """Return the variables of `T.grid`, which yields a single variable without a list."""
    return [loops] if isinstance(loops, tirx.Var) else list(loops)
