"""Check that a scheduled function becomes a GPU kernel, without a GPU."""

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call

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
    calls: list[Call] = []
    for _, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (Call, calls.append))
    return any("packed" in getattr(call.op, "name", "") for call in calls)


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
