"""The compiler of a device's kernels, where it is not LLVM."""

from collections.abc import Iterator
from contextlib import contextmanager

import tvm

from autopipe.compiler.target.target import backend_of
from autopipe.errors import StageError


class NotCompiled(StageError):  # noqa: N818 - the name states the event
    """The compiler of a device refuses a kernel."""


@contextmanager
def use_kernel_compiler(target: tvm.target.Target) -> Iterator[None]:
    """Compile kernels of a target for files: the same bytes with and without the device.

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
    except RuntimeError as error:  # TVM's wrapper of an error in the callback
        if not str(error).startswith(compiler.FAILED):
            raise
        raise NotCompiled(str(error)) from None
