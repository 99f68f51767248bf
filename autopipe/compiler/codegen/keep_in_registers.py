"""Put the buffers of scope `local` of a kernel on the stack, where LLVM makes registers of them.

For processors TVM puts small buffers of scope `global` on the stack, and asks its allocator for all
others. LLVM promotes stack memory to registers, but not memory of an allocator: a tile of sums was
allocated and freed for each tile, and stored when it was cleared and when it was complete, beside
the registers that LLVM held it in.

    sums = alloc_workspace(384)           sums = stack [6, 16]
    sums[...] = 0                         ... none of these stores is left
    for k in range(64): ...      becomes  for k in range(64): ...
    sums[...] = registers                 y[...] = registers
    y[...] = registers
    free_workspace(sums)

The pass runs as late as possible, so that TVM's earlier analyses of such buffers stay valid.
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx

MOST: Final = 4096
"""Bytes of the largest buffer on the stack; 32 registers of 512 bits hold 2048."""

_LEFT_ALONE: Final = "disable_lower_builtin"
"""With this annotation TVM leaves an allocation to LLVM, which puts it on the stack."""


def keep_in_registers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Allocate the small buffers of scope `local` of a kernel on the stack."""

    def leave_to_llvm(allocation: tirx.AllocBuffer) -> tirx.Stmt:
        if allocation.buffer.scope() != "local" or not 0 < _count_bytes(allocation.buffer) <= MOST:
            return allocation
        annotations = {**dict(allocation.annotations or {}), _LEFT_ALONE: tirx.IntImm("int32", 1)}
        return tirx.AllocBuffer(allocation.buffer, annotations)

    return tvm_ffi.structural_map(function, (tirx.AllocBuffer, leave_to_llvm))


def _count_bytes(buffer: tvm.ir.Var) -> int:
    """Return the size of a buffer in bytes, 0 if its shape is dynamic."""
    size = int(tvm.runtime.DataType(str(buffer.ty.dtype)).itemsize)
    for extent in buffer.ty.shape:
        if not isinstance(extent, tirx.IntImm):
            return 0
        size *= int(extent)
    return size
