"""Interfaces of the two modules that a backend for devices provides."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tvm_ffi import Tensor


class ArgumentStaging(Protocol):
    """Copies the arguments of one function to a device, and its results back."""

    def put(self, tensor: object) -> "Tensor":
        """Return a copy on the device."""

    def arguments(self, device_arguments: Mapping[int, object] = ...) -> list[object]:
        """Copy the buffers to the device and return the copies, except for `device_arguments`."""

    def places(self) -> "list[Tensor]":
        """Return the tensors on the device that are overwritten before each call."""

    def results(self, tensors: Sequence[object]) -> "list[Tensor]":
        """Wait for the device, and return copies of the results in this process."""


class DeviceRuntime(Protocol):
    """The runtime of a device in this process, such as `compiler.library.cuda_runtime`."""

    @property
    def NUMBER(self) -> int:  # noqa: N802 - a constant of a module
        """DLPack's number of the device type."""

    @property
    def Staging(self) -> "Callable[[Sequence[Tensor]], ArgumentStaging]":  # noqa: N802 - its class
        """The class that copies arguments to the device."""

    def load(self) -> None:
        """Load the runtime into this process. Raises SetupError without a driver or a library."""

    def check_unused(self) -> None:
        """Raise SetupError if this process has used the device, so that its forks cannot."""


class KernelCompiler(Protocol):
    """Compiles kernels that TVM alone cannot compile; `compiler.library.nvcc` is one."""

    @property
    def FAILED(self) -> str:  # noqa: N802 - a constant of a module
        """The beginning of its error messages."""

    def install(self) -> None:
        """Register it as TVM's compiler in this process. Raises SetupError if it is missing."""

    def portable(self) -> AbstractContextManager[None]:
        """Compile for files, with the same bytes with and without the device."""
