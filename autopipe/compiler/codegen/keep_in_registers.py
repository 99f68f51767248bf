"""Put the buffers of scope `local` of a kernel on the stack, where LLVM makes registers of them.

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

MOST: Final = 4096
"""Bytes of the largest buffer that comes to the stack; 32 registers of 512 bits hold 2048."""

_LEFT_ALONE: Final = "disable_lower_builtin"
"""With this annotation TVM leaves an allocation to LLVM, which puts it on the stack."""


def keep_in_registers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel whose small buffers of scope `local` are on the stack."""

    def left_alone(allocated: tirx.AllocBuffer) -> tirx.Stmt:
        if allocated.buffer.scope() != "local" or not 0 < _count_bytes(allocated.buffer) <= MOST:
            return allocated
        annotations = {**dict(allocated.annotations or {}), _LEFT_ALONE: tirx.IntImm("int32", 1)}
        return tirx.AllocBuffer(allocated.buffer, annotations)

    return tvm_ffi.structural_map(function, (tirx.AllocBuffer, left_alone))


def _count_bytes(buffer: tvm.ir.Var) -> int:
    """Return the bytes of a buffer, 0 if that is not known."""
    size = int(tvm.runtime.DataType(str(buffer.ty.dtype)).itemsize)
    for extent in buffer.ty.shape:
        if not isinstance(extent, tirx.IntImm):
            return 0
        size *= int(extent)
    return size
