"""Whether TVM makes GPU kernels of a scheduled function; no GPU is needed to tell."""

import tvm
from tvm import s_tir, tirx

_REFUSALS = (RuntimeError, ValueError, TypeError)
"""All that TVM's passes raise."""


def refusal(module: tvm.IRModule, target: tvm.target.Target) -> str | None:
    """Return why the functions of a module are no kernels of a GPU, or None if they are."""
    if not threaded(module, target):
        return "some of its loops are outside of threads"
    everything, _, _ = tirx.get_tir_pipeline("default")
    try:
        everything(tirx.transform.BindTarget(target)(module))
    except _REFUSALS as error:
        return str(error).strip().split("\n", 1)[0] or type(error).__name__
    return None


def threaded(module: tvm.IRModule, target: tvm.target.Target) -> bool:
    """Tell whether all that the functions read and write is read and written by a GPU's threads.

    TVM 0.27 compiles the rest for the host, where it reads the GPU's memory and dies: its own
    check comes after a pass that hides what is read, so it is made here before that pass.
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
