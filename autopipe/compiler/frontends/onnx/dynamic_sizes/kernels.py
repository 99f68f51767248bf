"""Kernels with data-dependent output sizes.

The output has to be allocated before its size is known. So each kernel has two parts: the first
counts, and the second writes as many rows as were counted.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tvm import relax, te, tirx
from tvm.ir import Expr, Var
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Stmt
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    as_int64,
    multiply_sizes,
    to_shape,
)

CHUNK: Final = 1024
"""Elements that one thread scans sequentially."""

_FULL: Final = "int64"


class LoopBuffer(Protocol):
    """A buffer in loops of TVM's script builder."""

    shape: Sequence[Expr]

    def __getitem__(self, index: object, /) -> Expr:
        """Return the element at an index."""

    def __setitem__(self, index: object, value: object, /) -> None:
        """Write a loop's store."""


def find_nonzero_places(site: NodeSite, data: Expr, sizes: Sequence[Size]) -> Expr:
    """Compute the flat indices of nonzero elements, int64 [count]."""
    bb, size = site.bb, site.extents.simple(multiply_sizes(sizes))
    flat = bb.emit(relax.op.reshape(data, to_shape([size])))
    counts = bb.emit_te(_count_nonzero, flat, as_int64(size), primfunc_name_hint="counted")
    ends, count = sum_counts(site, counts, size)
    return bb.emit_te(
        _list_nonzero_places, flat, ends, as_int64(size), count, primfunc_name_hint="placed"
    )


def sum_counts(site: NodeSite, counts: Expr, most: Size) -> tuple[Expr, Expr]:
    """Return (cumulative counts, total count as a new size of at most `most`)."""
    ends = site.bb.emit(relax.op.cumsum(counts, axis=0, dtype=_FULL))
    number = site.bb.emit_te(_add_counts, counts, primfunc_name_hint="number")
    (total,) = site.extents.read(site.bb, number, site.name, site.extents.bounds(most)[1])
    return ends, total


def _count_nonzero(flat: te.Tensor, size: Size) -> te.Tensor:
    """Count the nonzero elements in each chunk of a flat tensor.

    Example: 2,500 elements have three counts, of [0:1024], [1024:2048] and [2048:2500].
    """
    dtype = str(flat.dtype)
    within = te.reduce_axis((as_int64(0), as_int64(CHUNK)), "within")

    def count(chunk: Expr) -> Expr:
        place = chunk * CHUNK + within
        flag = tirx.if_then_else(
            place < size,
            tirx.Cast(_FULL, _is_nonzero(flat[place], dtype)),
            as_int64(0),
        )
        return te.sum(flag, axis=within)

    return te.compute([_count_chunks(size)], count, name="counted")


def _add_counts(counts: te.Tensor) -> te.Tensor:
    """Sum counts to a tensor [1]; TVM's sum of no elements is undefined."""

    def write(counts: LoopBuffer, out: LoopBuffer) -> None:
        with T.serial(as_int64(0), as_int64(1)) as at:
            out[at] = as_int64(0)
            with T.serial(as_int64(0), counts.shape[0]) as place:
                out[at] = out[at] + counts[place]

    return build_extern(write, [counts], [([1], _FULL)], "number")[0]


def _list_nonzero_places(flat: te.Tensor, ends: te.Tensor, size: Size, count: Size) -> te.Tensor:
    """List the `count` flat indices of nonzero elements, in order.

    `ends` are the cumulative counts up to the end of each chunk.
    """
    dtype = str(flat.dtype)

    def write(flat: LoopBuffer, ends: LoopBuffer, out: LoopBuffer) -> None:
        with T.parallel(as_int64(0), _count_chunks(size)) as chunk:
            row = make_variable()
            row[0] = tirx.if_then_else(
                chunk == 0, as_int64(0), ends[tirx.max(chunk - 1, as_int64(0))]
            )
            with T.serial(as_int64(0), as_int64(CHUNK)) as within:
                place = chunk * CHUNK + within
                # nested, not `place < size and ...`, so that no index out of range is read
                is_inside, is_nonzero = T.If(place < size), T.If(_is_nonzero(flat[place], dtype))
                with is_inside, T.Then(), is_nonzero, T.Then():
                    out[row[0]] = place
                    row[0] = row[0] + as_int64(1)

    return build_extern(write, [flat, ends], [([count], _FULL)], "placed")[0]


def _is_nonzero(value: Expr, dtype: str) -> Expr:
    return value if dtype == "bool" else value != tirx.const(0, dtype)


def _count_chunks(size: Size) -> Expr:
    return tirx.floordiv(as_int64(size) + (CHUNK - 1), as_int64(CHUNK))


def make_variable() -> LoopBuffer:
    """Allocate an int64 variable of a loop, which is element 0 of a buffer."""
    return T.buffer_proxy(T.alloc_buffer((1,), _FULL, scope="local"))


Written = Sequence[tuple[Sequence[Size], str]]
"""Shape and dtype of each output."""


def build_extern(
    write: Callable[..., None], inputs: Sequence[te.Tensor], outputs: Written, name: str
) -> list[te.Tensor]:
    """Build an extern op from loops; `write` takes the buffers of inputs, then of outputs."""

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        with IRBuilder() as builder:
            write(*(T.buffer_proxy(buffer) for buffer in (*inputs, *outputs)))
        return builder.get()

    shapes = [[as_int64(size) for size in shape] for shape, _ in outputs]
    dtypes = [dtype for _, dtype in outputs]
    results = te.extern(
        shapes,
        list(inputs),
        body,
        name=name,
        dtype=dtypes,
        in_buffers=[tirx.decl_buffer(one.shape, one.dtype, one.op.name) for one in inputs],
        out_buffers=[
            tirx.decl_buffer(shape, dtype, name)
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ],
    )
    return list(results) if len(outputs) > 1 else [results]
