"""Has the buffers of scope `local` of a kernel live where LLVM makes registers of them.

For processors TVM puts small buffers of scope `global` on the stack, and asks its allocator for all
others. LLVM turns what is on the stack into registers. Memory of an allocator it does not: a tile
of sums was asked for and given back for each tile, and written to it when it was cleared and when
it was done, beside the registers that LLVM kept it in.

    sums = alloc_workspace(384)           sums = stack [6, 16]
    sums[...] = 0                         ... none of these stores is left
    for k in range(64): ...      becomes  for k in range(64): ...
    sums[...] = registers                 y[...] = registers
    y[...] = registers
    free_workspace(sums)

It is done as late as can be, so that all that TVM knows of such buffers before stays true.
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir.pipeline import default_s_tir_pipeline
from tvm.tirx import compilation_pipeline

from autopipe.compiler import bfloat16_rounding, exact_divisions, wrapping_integers
from autopipe.compiler.bfloat16_operands import typed
from autopipe.compiler.border_loops import split_at_borders
from autopipe.compiler.nan_propagation import propagate_nan
from autopipe.compiler.reciprocals import multiplied
from autopipe.compiler.tile_configuration import configured

PIPELINE: Final = "autopipe.kernels"
"""Name of the pipeline for kernels, as `tvm.tirx.build` takes it."""

MOST: Final = 4096
"""Bytes of the largest buffer that comes to the stack; 32 registers of 512 bits hold 2048."""

_LEFT_ALONE: Final = "disable_lower_builtin"
"""With this annotation TVM leaves an allocation to LLVM, which puts it on the stack."""


def kept(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel whose small buffers of scope `local` are on the stack."""

    def left_alone(allocated: tirx.AllocBuffer) -> tirx.Stmt:
        if allocated.buffer.scope() != "local" or not 0 < _size(allocated.buffer) <= MOST:
            return allocated
        annotations = {**dict(allocated.annotations or {}), _LEFT_ALONE: tirx.IntImm("int32", 1)}
        return tirx.AllocBuffer(allocated.buffer, annotations)

    return tvm_ffi.structural_map(function, (tirx.AllocBuffer, left_alone))


def _size(buffer: tvm.ir.Var) -> int:
    """Return the bytes of a buffer, 0 if that is not known."""
    size = int(tvm.runtime.DataType(str(buffer.ty.dtype)).itemsize)
    for extent in buffer.ty.shape:
        if not isinstance(extent, tirx.IntImm):
            return 0
        size *= int(extent)
    return size


def before(host: tvm.transform.Pass) -> tvm.transform.Pass:
    """Return the last passes for code of a processor, with ours before them."""
    each = tirx.transform.prim_func_pass(
        lambda function, *_: configured(
            typed(kept(multiplied(propagate_nan(split_at_borders(function)))))
        ),
        opt_level=0,
    )
    return tvm.transform.Sequential([each, host])


def _pipeline() -> tuple[object, object, object]:
    """Return TVM's pipeline, with `before` before allocations are written out."""
    kernels, host, device = default_s_tir_pipeline()
    kernels = exact_divisions.before(bfloat16_rounding.before(kernels))
    kernels = wrapping_integers.before(kernels)
    return kernels, lambda: before(host()), device


compilation_pipeline.PIPELINE_MAP[PIPELINE] = _pipeline
