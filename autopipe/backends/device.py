"""What a backend brings for kernels that do not run on the processor: contracts of two modules."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tvm_ffi import Tensor


class ArgumentStaging(Protocol):
    """Copies the arguments of one function to a device, and its results back."""

    def put(self, tensor: object) -> "Tensor":
        """Return a copy on the device."""

    def arguments(self, held: Mapping[int, object] = ...) -> list[object]:
        """Copy the buffers to the device and return the copies; `held` are there already."""

    def places(self) -> "list[Tensor]":
        """Return the tensors on the device that are filled before each call."""

    def results(self, tensors: Sequence[object]) -> "list[Tensor]":
        """Wait for the device, and return copies of the results in this process."""


class DeviceRuntime(Protocol):
    """What kernels of a device need of this process; `compiler.library.cuda_runtime` is one."""

    @property
    def NUMBER(self) -> int:  # noqa: N802 - a constant of a module
        """The number that DLPack gives the kind of device."""

    @property
    def Staging(self) -> "Callable[[Sequence[Tensor]], ArgumentStaging]":  # noqa: N802 - its class
        """Makes the copies of the buffers that are filled before each call."""

    def load(self) -> None:
        """Load the runtime into this process. Raises SetupError without a driver or a library."""

    def check_unused(self) -> None:
        """Raise SetupError if this process has used the device, so that no fork of it can."""


class KernelCompiler(Protocol):
    """Compiles kernels that TVM alone cannot compile; `compiler.library.nvcc` is one."""

    @property
    def FAILED(self) -> str:  # noqa: N802 - a constant of a module
        """The beginning of its error messages."""

    def install(self) -> None:
        """Have TVM compile with it in this process. Raises SetupError where it is missing."""

    def portable(self) -> AbstractContextManager[None]:
        """Compile for files: the same bytes with and without the device."""
