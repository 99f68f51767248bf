"""Recognizes contractions that are matrix products in the layouts of BLAS.

Example: `c[b, i, j] += x[b, i, k] * y[b, k, j]` with extents 2, 8, 20 and 12 is a loop over b with
the steps (a=96, b=240, c=160) around a Gemm with m=8, n=20, k=12. A 1x1 convolution (NHWC) is one
Gemm, as its batch, rows and columns collapse into one axis.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.sym import Analyzer, detect_linear_equation

from autopipe.compiler.find_nodes import is_among
from autopipe.schedules.analysis.expressions import flat_index, replace_variables
from autopipe.schedules.analysis.product import Product


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop, and its strides in each operand and in the result, in elements."""

    extent: int
    a: int
    b: int
    c: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in a buffer: row-major, or column-major if it is transposed."""

    buffer: Any
    offset: int
    """Its first element in the buffer."""
    transposed: bool
    lead: int
    """Elements from one row to the next, or from one column if transposed: BLAS's `ld`."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """`c[m, n] = sum over k of a[m, k] * b[k, n]`, for each step of some loops."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    row: Axis
    """A step along `m`."""
    column: Axis
    """A step along `n`."""
    loops: tuple[Axis, ...]
    """The loops around the product, the outermost first."""

    @property
    def products(self) -> int:
        """Number of multiply-adds of all products."""
        return self.m * self.n * self.k * math.prod(loop.extent for loop in self.loops)


def match_gemm(product: Product) -> Gemm | None:
    """Return the matrix products that a block computes, or None if it is something else."""
    term, store = product.term, product.block.body
    if not isinstance(term, tvm.tirx.Mul) or len(product.loads) != 2:  # noqa: PLR2004 - operands
        return None
    if not all(is_among(side, product.loads) for side in (term.a, term.b)):
        return None  # an operand is not a plain load
    loops = [*zip(product.axes, product.extents, strict=True)]
    loops += zip(product.sums, product.terms, strict=True)
    loop_axes = [(var, extent) for var, extent in loops if extent > 1]
    single_values = [
        (axis.var, axis.dom.min)
        for axis in product.block.iter_vars
        if int(axis.dom.extent) < 2  # noqa: PLR2004 - of extent 1
    ]
    places = [(load.source, load.indices) for load in product.loads]
    places.append(
        (store.buffer, [replace_variables(index, single_values) for index in store.indices])
    )
    steps = [_find_strides(*place, [var for var, _ in loop_axes]) for place in places]
    if not all(steps):
        return None
    *strides, offsets = zip(*steps, strict=True)
    axes = [
        Axis(extent, *steps_of) for (_, extent), steps_of in zip(loop_axes, strides, strict=True)
    ]
    operands = [place[0] for place in places]
    # c = a @ b did not match; try the operands in reverse order.
    return _match_operand_order(axes, operands, offsets) or _match_operand_order(
        [Axis(axis.extent, axis.b, axis.a, axis.c) for axis in axes],
        [operands[1], operands[0], operands[2]],
        (offsets[1], offsets[0], offsets[2]),
    )


def _find_strides(
    buffer: tvm.ir.Var, indices: Sequence[tvm.ir.Expr], axes: Sequence[tvm.ir.Var]
) -> list[int]:
    """Return the stride along each axis, then the offset, in elements; [] if not constant."""
    flat = flat_index(buffer, indices)
    linear = detect_linear_equation(Analyzer().simplify(flat), list(axes)) if axes else [flat]
    constant = all(isinstance(factor, tvm.tirx.IntImm) for factor in linear)
    return [int(factor) for factor in linear] if constant else []


def _match_operand_order(
    axes: Sequence[Axis], buffers: Sequence[Any], offsets: Sequence[int]
) -> Gemm | None:
    """Return the matrix products with the operands in this order, or None if they do not match.

    An axis of only `a` and `c` is of the rows, one of only `b` and `c` of the columns, one of only
    `a` and `b` is summed; one of all three is an outer (batch) loop.
    """
    if any(axis.c and not axis.a and not axis.b for axis in axes):
        return None
    if any(not axis.c and not (axis.a and axis.b) for axis in axes):
        return None
    by_c: Callable[[Axis], int] = lambda axis: -axis.c  # noqa: E731 - a key
    sums = sorted((axis for axis in axes if not axis.c), key=lambda axis: -axis.a)
    batch_axes = [axis for axis in axes if axis.c and axis.a and axis.b]
    row, rows = _merge_axes(sorted((x for x in axes if x.c and not x.b), key=by_c), "ac")
    column, columns = _merge_axes(sorted((x for x in axes if x.c and not x.a), key=by_c), "bc")
    term, terms = _merge_axes(sums, "ab")
    if terms or column.c not in (0, 1) or (column.extent > 1 and column.c != 1):
        return None
    m, n, k = row.extent, column.extent, term.extent
    a = _match_matrix(buffers[0], offsets[0], (m, row.a), (k, term.a))
    b = _match_matrix(buffers[1], offsets[1], (k, term.b), (n, column.b))
    c = _match_matrix(buffers[2], offsets[2], (m, row.c), (n, column.c))
    if a is None or b is None or c is None or c.transposed:
        return None
    return Gemm(m, n, k, a, b, c, row, column, (*batch_axes, *rows, *columns))


def _merge_axes(axes: Sequence[Axis], which: str) -> tuple[Axis, list[Axis]]:
    """Merge the last axes that are contiguous in the tensors `which`; return also the others."""
    if not axes:
        return Axis(1, 0, 0, 0), []
    *rest, last = axes
    while rest:
        steps = [(getattr(rest[-1], t), getattr(last, t) * last.extent) for t in which]
        if any(step != whole for step, whole in steps):
            break
        last = Axis(rest.pop().extent * last.extent, last.a, last.b, last.c)
    return last, rest


def _match_matrix(
    buffer: tvm.ir.Var,
    offset: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> Matrix | None:
    """Return the matrix with these extents and steps, or None if no side is contiguous."""
    (height, row_step), (width, column_step) = rows, columns
    if width == 1 or column_step == 1:
        lead = row_step if height > 1 else width
        if lead >= width:
            return Matrix(buffer, offset, transposed=False, lead=lead)
    if height == 1 or row_step == 1:
        lead = column_step if width > 1 else height
        if lead >= height:
            return Matrix(buffer, offset, transposed=True, lead=lead)
    return None
