"""Reads and rewrites TIR expressions, and writes loops over elements."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.sym import detect_linear_equation
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it
from tvm_ffi import structural_mutate

from autopipe.compiler.find_nodes import find_nodes, is_among
from autopipe.schedules.analysis.blocks import Extent, extent_of, number_of, simplify_extent

Values = Sequence[tuple[tvm.ir.Var, tvm.ir.Expr]]
"""Pairs of a variable and its value; no dict, as TVM's variables have no hash here."""


BRANCH: Final = "prim.if_then_else"
"""The operator that evaluates only one of two values."""


def is_branch(node: Any) -> bool:  # noqa: ANN401 - any TIR
    """Tell whether a node is a branch in an expression."""
    return getattr(getattr(node, "op", None), "name", "") == BRANCH


def branches_of(expression: Any) -> list[Call]:  # noqa: ANN401 - any TIR
    """Return the branches in an expression, in order of their appearance."""
    return list(filter(is_branch, find_nodes(expression, Call)))


def to_selects(value: Expr, when: Callable[[Call], bool]) -> Expr:
    """Replace branches in an expression by selects, where `when` holds."""

    def choice(call: Call) -> Expr:
        return tirx.Select(*call.args) if is_branch(call) and when(call) else call

    return tvm_ffi.structural_map(value, (Call, choice))


def flat_index(buffer: tvm.ir.Var, indices: Sequence[Any]) -> Any:  # noqa: ANN401 - an expression, or a number
    """Return the row-major offset of an element in its buffer, in elements."""
    return ravel_index(map(extent_of, buffer.ty.shape), indices)


def ravel_index(extents: Iterable[Extent], indices: Sequence[Any]) -> Any:  # noqa: ANN401 - as above
    """Convert the index along each axis to a row-major index over all axes."""
    flat: Any = 0
    for index, extent in zip(indices, extents, strict=True):
        flat = flat * extent + index
    return flat


def find_steps(value: Expr, axes: Sequence[Any]) -> list[int] | None:
    """Return the step of a value along each axis; None if one is not constant."""
    *steps, _ = detect_linear_equation(value, list(axes)) or [None]
    is_constant = len(steps) == len(axes) and all(isinstance(step, tirx.IntImm) for step in steps)
    return list(map(int, steps)) if is_constant else None


def remove_repeated_loads(loads: Sequence[TensorLoad]) -> list[TensorLoad]:
    """Remove structurally equal loads."""
    unique_loads: list[TensorLoad] = []
    for load in loads:
        if not any(tvm_ffi.structural_equal(load, one) for one in unique_loads):
            unique_loads.append(load)
    return unique_loads


def count_occurrences(expression: tvm.ir.Expr, var: tvm.ir.Expr) -> int:
    """Count the occurrences of a variable in an expression."""
    return sum(map(var.same_as, find_nodes(expression, tvm.ir.Var)))


def replace_variables(
    expression: tvm.ir.Expr,
    values: Values,
    load: Callable[[TensorLoad], tvm.ir.Expr | None] = lambda _: None,
) -> tvm.ir.Expr:
    """Replace variables in an expression by their values.

    A load is replaced by the result of `load`; if that is None, only its indices are rewritten.
    """

    def variable(var: tvm.ir.Var, _: object) -> tvm.ir.Expr:
        return next((value for other, value in values if other.same_as(var)), var)

    def read(old: TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tvm.ir.Expr:
        value = load(old)
        return mutator.default_mutate(old) if value is None else value

    return structural_mutate(expression, [(TensorLoad, read), (tvm.ir.Var, variable)])


def unravel_index(
    extents: Sequence[Extent], index: tvm.ir.Expr, *, job: bool = False
) -> list[tvm.ir.Expr]:
    """Convert a row-major index over all axes to the index along each axis.

    Example: index 23 over axes of extents (2, 3, 4) is [1, 2, 3], as 23 = (1 * 3 + 2) * 4 + 3. The
    first part is not taken modulo its extent, as the index is in bounds.

    The index may be that of a `job`, and the parts are bound to variables. Then dynamic extents are
    clamped to at least 1: TVM reports a division by zero in loops that it proves empty. Elsewhere
    the clamp would hide from TVM that a row is contiguous in memory.
    """

    def divisor(extent: Extent) -> Extent:
        return tvm.tirx.max(extent, 1) if job and not isinstance(extent, int) else extent

    inner_sizes = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    parts = [index // divisor(size) for size in inner_sizes]
    return [
        part if i == 0 else part % divisor(extent)
        for i, (part, extent) in enumerate(zip(parts, extents, strict=True))
    ]


def find_block_start(block: Expr, size: Extent, extent: Extent) -> Expr:
    """Return the start of a block; the last block overlaps the previous one to stay in bounds."""
    start, last = block * size, extent - size
    if isinstance(size, int) and (size == 1 or (isinstance(last, int) and last % size == 0)):
        return start
    return tirx.min(start, last)


def to_full_region(buffer: tvm.ir.Var) -> tvm.ir.TensorRegion:
    """Return the region that covers a whole buffer."""
    return tirx.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.ty.shape])


def remove_duplicates(buffers: Sequence[tvm.ir.Var]) -> list[tvm.ir.Var]:
    """Remove repeated buffers, in order."""
    return [one for at, one in enumerate(buffers) if not is_among(one, buffers[:at])]


def write_branches(condition: bool | tvm.ir.Expr) -> Iterator[bool]:  # noqa: FBT001 - it is the subject
    """Write both branches of a condition, or one if it is constant; yield the value in each."""
    if isinstance(condition, bool):
        yield condition
        return
    with T.If(condition):
        with T.Then():
            yield True
        with T.Else():
            yield False


def open_loop(
    kind: Callable[..., AbstractContextManager[Any]], extent: Extent, dtype: str
) -> AbstractContextManager[Any]:
    """Open a loop from 0 with an index of a dtype; `kind` is `T.serial` or the like."""
    return kind(number_of(0, dtype), number_of(extent, dtype))


@contextmanager
def open_loops(
    kind: Callable[..., AbstractContextManager[Any]], extents: Iterable[Extent], dtype: str
) -> Iterator[list[Any]]:
    """Open nested loops, the outermost first, as `open_loop` opens one; yield their indices."""
    with ExitStack() as loops:
        yield [loops.enter_context(open_loop(kind, extent, dtype)) for extent in extents]


def write_lane_loops(
    count: Extent,
    width: int,
    dtype: str,
    *,
    unroll: bool = False,
) -> Iterator[tuple[tvm.ir.Expr, tvm.ir.Expr]]:
    """Write a loop over vectors, then the remainder in shorter ones; yield each index and its lane.

    Example: 23 elements with `width` 8 are 2 vectors of 8, then one each of 4, 2 and 1. Where the
    count is dynamic, the remainder is a scalar loop. Indices are of `dtype`. An IRBuilder must be
    open.
    """
    count, loop = simplify_extent(count), T.unroll if unroll else T.serial
    if (vectors := simplify_extent(count // width)) != 0:
        with (
            open_loop(loop, vectors, dtype) as vector,
            open_loop(T.vectorized, width, dtype) as lane,
        ):
            yield vector * width + lane, lane
    if not isinstance(count, int):
        if (rest := simplify_extent(count % width)) != 0:
            with open_loop(T.serial, rest, dtype) as element:
                yield number_of(vectors * width, dtype) + element, element
        return
    start = count // width * width
    while start < count:
        width //= 2
        if start + width <= count:
            with open_loop(T.vectorized, width, dtype) as lane:
                yield start + lane, lane
            start += width


def write_element_loops(
    count: Extent,
    width: int,
    dtype: str,
    *,
    unroll: bool = False,
) -> Iterator[tvm.ir.Expr]:
    """Write the loops of `write_lane_loops`; yield each index."""
    return (index for index, _ in write_lane_loops(count, width, dtype, unroll=unroll))


def write_tile_loops(
    rows: int, columns: int, width: int, dtype: str
) -> Iterator[tuple[tvm.ir.Expr, tvm.ir.Expr]]:
    """Write unrolled loops over the elements of a tile, in vectors; yield row and column."""
    with open_loop(T.unroll, rows, dtype) as row:
        for column in write_element_loops(columns, width, dtype, unroll=True):
            yield row, column
