"""Remove TVM's layout annotation from buffers of dynamic shape.

Passes that rename the dynamic sizes of a PrimFunc do not rename them in layouts: these then refer
to undefined sizes, and the PrimFunc cannot be compiled. Without a layout a buffer is row-major.
"""

import tvm
from tvm import tirx
from tvm_ffi import structural_map

from autopipe.compiler.module_io import list_prim_funcs


def drop_buffer_layouts(module: tvm.IRModule) -> tvm.IRModule:
    """Remove layouts from the buffers of PrimFuncs with dynamic shapes."""
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
