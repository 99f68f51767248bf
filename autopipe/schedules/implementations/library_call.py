"""Writes the call of a library as a block of TIR.

A CBLAS library runs single-threaded; the matmul is divided among TVM's threads, along its longer
side. Example: 1000 x 512 rows and columns on 2 cores become 2 parts of 512 rows; the last part has
488 (half of 1000, rounded up to a multiple of 32):

    for job in parallel(2):
        sgemm(rows=min(512, 1000 - 512 * job), columns=512, k, a + 512 * job * lda, b,
              c + 512 * job * ldc)
"""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any, Final

import tvm
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.libraries.library import CBlas, Packed
from autopipe.schedules.analysis.expressions import to_full_region
from autopipe.schedules.analysis.gemm import Axis, Gemm, Matrix

_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
"""The enums CblasRowMajor, CblasNoTrans and CblasTrans of the C interface of BLAS."""

_GRAIN: Final = 32
"""Granularity of the parts of a matmul, in rows or columns."""

_ENOUGH: Final = 4
"""Matmuls per thread from which on they are not divided, as the load is balanced."""


def write_library_call(
    name: str, gemm: Gemm, interface: CBlas | Packed, cores: int
) -> tvm.tirx.Stmt | None:
    """Write the block in which a library computes the matmuls, or return None if it cannot.

    `name` is that of the block; `cores` is the number of threads.
    """
    dtype = str(gemm.c.buffer.ty.dtype)
    if isinstance(interface, Packed):
        return _write_packed_call(name, gemm, interface)
    if dtype not in interface.gemm:
        return None
    return _write_cblas_call(name, gemm, interface, cores)


def _write_cblas_call(name: str, gemm: Gemm, interface: CBlas, cores: int) -> tvm.tirx.Stmt:
    """Write the block that calls CBLAS for each part of each matmul, in parallel."""
    dtype, (height, width) = str(gemm.c.buffer.ty.dtype), _divide_work(gemm, cores)
    row = Axis(ceil(gemm.m / height), gemm.row.a * height, 0, gemm.row.c * height)
    column = Axis(ceil(gemm.n / width), 0, gemm.column.b * width, gemm.column.c * width)
    loops = [*gemm.loops, row, column]
    jobs = prod(loop.extent for loop in loops)
    with IRBuilder() as builder, T.sblock(name):
        T.reads(to_full_region(gemm.a.buffer), to_full_region(gemm.b.buffer))
        T.writes(to_full_region(gemm.c.buffer))
        T.evaluate(T.call_extern("void", interface.threads, 1))
        with (T.parallel if jobs > 1 else T.serial)(0, jobs) as job:
            *_, at_row, at_column = steps = _unravel_job(job, loops)
            rows = _compute_part_size(gemm.m, height, at_row)
            columns = _compute_part_size(gemm.n, width, at_column)
            a, b, c = (
                _make_pointer(getattr(gemm, which), loops, steps, which)
                for which in ("a", "b", "c")
            )
            alpha, beta = (tvm.tirx.const(value, dtype) for value in (1, 0))
            arguments = [
                _ROW_MAJOR, _to_cblas_flag(gemm.a), _to_cblas_flag(gemm.b), rows, columns, gemm.k,
                alpha, a, gemm.a.lead, b, gemm.b.lead, beta, c, gemm.c.lead,
            ]  # fmt: skip
            T.evaluate(T.call_extern("void", interface.gemm[dtype], *arguments))
    return builder.get()


def _write_packed_call(name: str, gemm: Gemm, interface: Packed) -> tvm.tirx.Stmt | None:
    """Write the call of one undivided matmul, or return None, as TVM's runtime wraps no other."""
    shapes = [
        (gemm.k, gemm.m) if gemm.a.transposed else (gemm.m, gemm.k),
        (gemm.n, gemm.k) if gemm.b.transposed else (gemm.k, gemm.n),
        (gemm.m, gemm.n),
    ]
    matrices = (gemm.a, gemm.b, gemm.c)
    if gemm.loops or any(m.offset or m.lead != s[1] for m, s in zip(matrices, shapes, strict=True)):
        return None
    with IRBuilder() as builder, T.sblock(name):
        T.reads(to_full_region(gemm.a.buffer), to_full_region(gemm.b.buffer))
        T.writes(to_full_region(gemm.c.buffer))
        views = [_make_matrix_view(m, shape) for m, shape in zip(matrices, shapes, strict=True)]
        flags = [tvm.tirx.const(m.transposed, "bool") for m in matrices[:2]]
        T.evaluate(tvm.tirx.call_packed(interface.function, *views, *flags))
    return builder.get()


def _make_matrix_view(matrix: Matrix, shape: tuple[int, int]) -> Expr:
    """Return a matrix as a tensor of two dimensions, whatever the rank of its buffer."""
    sizes = [tvm.tirx.const(size, "int64") for size in shape]
    place = tvm.ir.PointerType(tvm.ir.PrimType("int64"))
    kind = tvm.tirx.const(0, str(matrix.buffer.ty.dtype))
    parts = [
        matrix.buffer.data, tvm.ir.Call("tirx.tvm_stack_make_shape", sizes, ret_ty=place),
        0, len(shape), kind, 0,
    ]  # fmt: skip
    return tvm.ir.Call("tirx.tvm_stack_make_array", parts, ret_ty="handle")


def _divide_work(gemm: Gemm, cores: int) -> tuple[int, int]:
    """Return the rows and columns of a part of a matmul, so that threads share all parts.

    It is divided along the longer side, so that less is packed twice.
    """
    jobs = prod(loop.extent for loop in gemm.loops)
    if jobs % cores == 0 or jobs >= _ENOUGH * cores:
        return gemm.m, gemm.n
    longer = max(gemm.m, gemm.n)
    part = max(_GRAIN, ceil(ceil(longer / cores) / _GRAIN) * _GRAIN)
    if gemm.m >= gemm.n:
        return min(part, gemm.m), gemm.n
    return gemm.m, min(part, gemm.n)


def _unravel_job(job: Expr, loops: Sequence[Axis]) -> list[Expr]:
    """Convert a job number to the index along each loop; the last loop varies fastest."""
    steps = []
    for loop in reversed(loops):
        steps.append(job % loop.extent)
        job = job // loop.extent
    return steps[::-1]


def _compute_part_size(extent: int, part: int, step: Expr) -> Expr | int:
    """Return the number of rows or columns of a part; the last part may have fewer."""
    if extent % part == 0:
        return part
    return T.min(tvm.tirx.const(part, "int32"), extent - step * part)


def _make_pointer(matrix: Matrix, loops: Sequence[Axis], steps: Sequence[Expr], which: str) -> Expr:
    """Return the address of an operand `which` ("a", "b" or "c") at some steps of the loops."""
    offset: Any = tvm.tirx.const(matrix.offset, "int64")
    for loop, step in zip(loops, steps, strict=True):
        offset = offset + tvm.tirx.Cast("int64", step) * getattr(loop, which)
    mask = "w" if which == "c" else "r"
    return matrix.buffer.access_ptr(mask, offset=tvm.sym.Analyzer().simplify(offset))


def _to_cblas_flag(matrix: Matrix) -> int:
    return _TRANSPOSED if matrix.transposed else _PLAIN
