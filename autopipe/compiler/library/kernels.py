"""Check that a scheduled function becomes a GPU kernel, without a GPU."""

import tvm
from tvm import s_tir, tirx
from tvm.ir import Call

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.module_io import list_prim_funcs

_REFUSALS = (RuntimeError, ValueError, TypeError)
"""The errors that TVM's passes raise."""


def find_kernel_refusal(module: tvm.IRModule, target: tvm.target.Target) -> str | None:
    """Return the reason why a function of a module is no GPU kernel, or None."""
    if not is_threaded(module, target):
        return "some of its loops are outside of threads"
    if _has_packed_calls(module):
        return "it calls the runtime on the host"
    everything, _, _ = tirx.get_tir_pipeline("default")
    try:
        everything(tirx.transform.BindTarget(target)(module))
    except _REFUSALS as error:
        return str(error).strip().split("\n", 1)[0] or type(error).__name__
    return None


def _has_packed_calls(module: tvm.IRModule) -> bool:
    """Tell whether functions call packed functions, as a sort does, which no GPU can."""
    return any(
        "packed" in getattr(call.op, "name", "")
        for _, function in list_prim_funcs(module)
        for call in find_nodes(function.body, Call)
    )


def is_threaded(module: tvm.IRModule, target: tvm.target.Target) -> bool:
    """Tell whether only threads of the GPU read and write the buffers of the functions.

    TVM 0.27 compiles code outside of GPU threads for the host, where it reads memory of the GPU and
    crashes. TVM has a check for this, but it runs after a pass that hides the reads. So the check
    is made here, before that pass.
    """
    loops = tvm.transform.Sequential(
        [
            tirx.transform.BindTarget(target),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.VerifyMemory(),
        ]
    )
    try:
        loops(module)
    except _REFUSALS:
        return False
    return True
