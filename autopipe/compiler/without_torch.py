"""Imports TVM's foreign function interface without PyTorch.

tvm_ffi imports PyTorch wherever that is installed, and asks it for a GPU. That takes seconds,
starts threads, and touches CUDA: a process that has done so can fork no child that uses the GPU.
Whoever has imported PyTorch before keeps it, and may import it afterwards.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TORCH = "torch"


@contextmanager
def without_torch() -> Iterator[None]:
    """Have an import of PyTorch fail meanwhile, as if it were not installed."""
    if _TORCH in sys.modules:
        yield
        return
    sys.modules[_TORCH] = None  # type: ignore[assignment]  # Python's way to say that there is none
    try:
        yield
    finally:
        sys.modules.pop(_TORCH, None)
