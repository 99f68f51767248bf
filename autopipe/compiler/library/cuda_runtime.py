"""Load TVM's CUDA runtime into this process. The GPU is first used by the first kernel."""

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from autopipe.environment.cuda import runtime_library
from autopipe.errors import SetupError

if TYPE_CHECKING:
    from tvm_ffi import Tensor

NUMBER = 2
"""The number that DLPack gives the kind of device."""

_CPU = 1
_DEFAULT_STREAM = 0
_NOT_INITIALIZED = 3
"""The driver's answer before its first use."""


@cache
def load() -> None:
    """Load it, after TVM's own runtime. Raises SetupError if driver or runtime are missing."""
    from tvm_ffi.libinfo import load_lib_ctypes

    from autopipe.compiler.library.nvcc import install_loader

    spec = find_spec("tvm")
    folders = [Path(folder, "lib") for folder in (spec and spec.submodule_search_locations) or ()]
    try:
        ctypes.CDLL(runtime_library(), ctypes.RTLD_GLOBAL)
        load_lib_ctypes("tvm", "tvm_runtime_cuda", "RTLD_LOCAL", folders)
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise SetupError(
            f"CUDA cannot be loaded: {reason}; it takes a driver for CUDA 13 and "
            "pip install 'autopipe[cuda]'"
        ) from None
    install_loader()


def check_unused() -> None:
    """Raise SetupError if this process has used CUDA already, so that no fork of it can use it.

    The query itself does not initialize CUDA.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    if driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != _NOT_INITIALIZED:
        raise SetupError(
            "this process has used CUDA, as PyTorch does where it looks for a GPU, and then no "
            "child of it can: `import autopipe.compiler.import_tvm` before tvm and PyTorch"
        )


class Staging:
    """Copies arguments of a function to the first GPU, and its results back."""

    def __init__(self, tensors: "Sequence[Tensor]") -> None:
        """Keep the buffers of this process that are copied to the GPU before each call."""
        from tvm_ffi import device, get_global_func

        self._to_device = get_global_func("vm.builtin.to_device")
        self._copy = get_global_func("runtime.TVMTensorCopyFromTo")
        self._sync = get_global_func("runtime.Device_StreamSync")
        self._device = device(NUMBER, 0)
        self._pairs = [(tensor, self.put(tensor)) for tensor in tensors]

    def put(self, tensor: object) -> "Tensor":
        """Copy a tensor to the GPU."""
        copy: Tensor = self._to_device(tensor, NUMBER, 0)
        return copy

    def arguments(
        self, device_arguments: Mapping[int, object] = MappingProxyType({})
    ) -> list[object]:
        """Copy the buffers to the GPU, and return the copies.

        `device_arguments` are arguments on the GPU already, by position.
        """
        for at, (source, copy) in enumerate(self._pairs):
            if at not in device_arguments:
                self._copy(source, copy)
        return [device_arguments.get(at, copy) for at, (_, copy) in enumerate(self._pairs)]

    def places(self) -> "list[Tensor]":
        """Return the tensors on the GPU that are filled before each call."""
        return [copy for _, copy in self._pairs]

    def results(self, tensors: Sequence[object]) -> "list[Tensor]":
        """Wait for the GPU, and return copies of the results in this process."""
        copies = [self._to_device(tensor, _CPU, 0) for tensor in tensors]
        self._sync(self._device, _DEFAULT_STREAM)
        return copies
