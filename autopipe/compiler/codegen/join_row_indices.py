"""Index the rows of a tile by their number where dynamic sizes would split it and join it again.

The rows of a tile number all positions of an image. Of an argument that holds one row for each
position, the indices are quotients and remainders of that number, and the place in memory is the
number again. TVM sees that for sizes that are numbers. With dynamic sizes two divisions are left
for each row of each tile, and expressions that take longer to simplify than the tile to compile.

    x[row // (height * width), row // width % height, row % width, channel]

becomes an index that is the same place in memory:

    x[0, 0, row, channel]
"""

from collections.abc import Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var
from tvm.sym import Analyzer
from tvm.tirx import FloorDiv, FloorMod

from autopipe.compiler.find_nodes import is_among


def join_row_indices(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Join the indices of loads from arguments and stores to them that are parts of one number.

    Buffers of the kernel itself keep theirs, as TVM allocates the range of their indices.
    """
    arguments = [param for param in function.params if _is_compact_buffer(param)]
    analyzer = Analyzer()

    def load(node: TensorLoad) -> Expr:
        indices = join(node.source, node.indices)
        return node if indices is None else node.source[tuple(indices)]

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        indices = join(node.buffer, node.indices)
        return node if indices is None else tirx.BufferStore(node.buffer, node.value, indices)

    def join(buffer: Var, indices: Sequence[Expr]) -> Sequence[Expr] | None:
        if not is_among(buffer, arguments):
            return None
        return _join_indices(list(indices), buffer.ty.shape, analyzer)

    body = tvm_ffi.structural_map(function.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return function if body.same_as(function.body) else function.with_body(body)


def _is_compact_buffer(param: Var) -> bool:
    return isinstance(param.ty, tirx.BufferType) and not param.ty.strides


def _join_indices(
    indices: list[Expr], shape: Sequence[Expr], analyzer: Analyzer
) -> list[Expr] | None:
    """Return indices of which one is the number that several were parts of; None if none was."""
    for last in range(len(indices) - 1, 0, -1):
        first = _find_first_part(indices[: last + 1], shape, analyzer)
        if first is not None:
            number = indices[last].a
            zeros = [tirx.const(0, number.ty)] * (last - first)
            return [*indices[:first], *zeros, number, *indices[last + 1 :]]
    return None


def _find_first_part(
    indices: Sequence[Expr], shape: Sequence[Expr], analyzer: Analyzer
) -> int | None:
    """Return the axis of the quotient of the number that the last index is the remainder of.

    The axes in between have the remainders of quotients. None if an axis has anything else.
    """
    axis = len(indices) - 1
    remainder, size = indices[axis], shape[axis]
    if not isinstance(remainder, FloorMod) or not analyzer.can_prove_equal(remainder.b, size):
        return None
    while axis > 0:
        axis -= 1
        part = indices[axis]
        is_wrapped = isinstance(part, FloorMod) and analyzer.can_prove_equal(part.b, shape[axis])
        quotient = part.a if is_wrapped else part
        if not isinstance(quotient, FloorDiv) or not analyzer.can_prove_equal(quotient.b, size):
            return None
        if not tvm_ffi.structural_equal(quotient.a, remainder.a):
            return None
        if not is_wrapped:
            return axis
        size = size * shape[axis]
    return None
