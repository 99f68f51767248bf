"""Loops that find: which elements are not 0, which boxes are good.

How many there are is not known before, and an output has to be allocated. So each kernel comes in
two parts: one counts, and after that the other writes as many rows as were counted.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64

# ruff: noqa: ANN401  what TVM has no types for

CHUNK: Final = 1024
"""Elements that one thread looks through, one after the other."""

_FULL: Final = "int64"


def count_nonzero(flat: Any, size: Any) -> Any:
    """Count what is not 0 in each chunk of a flat tensor.

    Example: of 2,500 elements, the three counts are of [0:1024], [1024:2048] and [2048:2500].
    """
    dtype = str(flat.dtype)
    within = te.reduce_axis((as_int64(0), as_int64(CHUNK)), "within")

    def count(chunk: Any) -> Any:
        place = chunk * CHUNK + within
        found = tirx.if_then_else(
            place < size,
            tirx.Cast(_FULL, _is_nonzero(flat[place], dtype)),
            as_int64(0),
        )
        return te.sum(found, axis=within)

    return te.compute([_count_chunks(size)], count, name="counted")


def sum_counts(counts: Any) -> Any:
    """Return the sum of counts: [1]. A sum of TVM has no value where there is nothing to add."""

    def write(counts: Any, out: Any) -> None:
        with T.serial(as_int64(0), as_int64(1)) as at:
            out[at] = as_int64(0)
            with T.serial(as_int64(0), counts.shape[0]) as place:
                out[at] = out[at] + counts[place]

    return build_extern(write, [counts], [([1], _FULL)], "number")[0]


def list_nonzero_places(flat: Any, ends: Any, size: Any, found: Any) -> Any:
    """Return the places of what is not 0: `found` numbers, in order.

    `ends` says for each chunk how many there are up to its end.
    """
    dtype = str(flat.dtype)

    def write(flat: Any, ends: Any, out: Any) -> None:
        with T.parallel(as_int64(0), _count_chunks(size)) as chunk:
            row = _make_number()
            row[0] = tirx.if_then_else(
                chunk == 0, as_int64(0), ends[tirx.max(chunk - 1, as_int64(0))]
            )
            with T.serial(as_int64(0), as_int64(CHUNK)) as within:
                place = chunk * CHUNK + within
                # a place outside is never read: this is no `place < size and ...`
                inside, there = T.If(place < size), T.If(_is_nonzero(flat[place], dtype))
                with inside, T.Then(), there, T.Then():
                    out[row[0]] = place
                    row[0] = row[0] + as_int64(1)

    return build_extern(write, [flat, ends], [([found], _FULL)], "placed")[0]


def _is_nonzero(value: Any, dtype: str) -> Any:
    """Tell whether an element is not 0."""
    return value if dtype == "bool" else value != tirx.const(0, dtype)


def _count_chunks(size: Any) -> Any:
    return tirx.floordiv(as_int64(size) + (CHUNK - 1), as_int64(CHUNK))


def _make_number() -> Any:
    return T.buffer_proxy(T.alloc_buffer((1,), _FULL, scope="local"))


Written = Sequence[tuple[Sequence[Any], str]]
"""Shape and dtype of each output."""


def build_extern(
    write: Callable[..., None], given: Sequence[Any], made: Written, name: str
) -> list[Any]:
    """Return the outputs of loops that `write` writes of buffers: the inputs, then the outputs."""

    def body(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        with IRBuilder() as builder:
            write(*(T.buffer_proxy(buffer) for buffer in (*inputs, *outputs)))
        return builder.get()

    shapes = [[as_int64(size) for size in shape] for shape, _ in made]
    dtypes = [dtype for _, dtype in made]
    results = te.extern(
        shapes,
        list(given),
        body,
        name=name,
        dtype=dtypes,
        in_buffers=[tirx.decl_buffer(one.shape, one.dtype, one.op.name) for one in given],
        out_buffers=[
            tirx.decl_buffer(shape, dtype, name)
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ],
    )
    return list(results) if len(made) > 1 else [results]
