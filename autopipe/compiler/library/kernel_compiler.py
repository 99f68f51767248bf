"""What compiles the kernels of a device, where LLVM does not."""

from collections.abc import Iterator
from contextlib import contextmanager

import tvm

from autopipe.compiler.target.target import backend_of
from autopipe.errors import StageError


class NotCompiled(StageError):  # noqa: N818 - says what happened
    """The compiler of a device refuses a kernel."""


@contextmanager
def use_kernel_compiler(target: tvm.target.Target) -> Iterator[None]:
    """Have kernels of a target compiled for files: the same bytes with and without the device.

    Raises SetupError where the backend's compiler is missing, and NotCompiled where it refuses.
    """
    compiler = backend_of(target).compiler()
    if compiler is None:  # TVM does it alone
        yield
        return
    compiler.install()
    try:
        with compiler.portable():
            yield
    except RuntimeError as error:  # what TVM makes of an error inside of it
        if not str(error).startswith(compiler.FAILED):
            raise
        raise NotCompiled(str(error)) from None
