"""Drops what TVM notes of the layout of buffers whose sizes are open.

Passes that rename the open sizes of a PrimFunc forget the layouts: what is noted there is then of
no size that the PrimFunc knows, and it can not be compiled. A buffer is row-major without.
"""

import tvm
from tvm import tirx
from tvm_ffi import structural_map

from autopipe.compiler.module_io import list_prim_funcs


def drop_buffer_layouts(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with no layouts in PrimFuncs with open sizes."""
    for name, function in list_prim_funcs(module):
        if _is_open(function):
            plain = structural_map(function, (tirx.BufferType, _drop_layout))
            module.update_func(module.get_global_var(name), plain)
    return module


def _is_open(function: tirx.PrimFunc) -> bool:
    return any(
        not isinstance(extent, tirx.IntImm)
        for param in function.params
        if isinstance(param.ty, tirx.BufferType)
        for extent in param.ty.shape
    )


def _drop_layout(kind: tirx.BufferType) -> tirx.BufferType:
    if kind.layout is None or all(isinstance(extent, tirx.IntImm) for extent in kind.shape):
        return kind
    return tirx.BufferType(
        kind.dtype, kind.storage_scope, kind.shape, kind.strides, kind.elem_offset,
        kind.data_alignment, kind.offset_factor, None, kind.allocated_addr,
    )  # fmt: skip
