"""The device on which candidates run: this machine's processor, or its first GPU."""

from collections.abc import Sequence

import tvm

from autopipe.compiler.target.target import backend_of
from autopipe.errors import SetupError


def prepare_device(target: tvm.target.Target) -> tvm.runtime.Device:
    """Return the device for code of the target, after installing its runtime and compiler.

    A GPU is not touched before a kernel is called: a process that has touched it cannot fork any
    more. Raises SetupError where the compiler for a GPU or its driver is missing.
    """
    backend = backend_of(target)
    if backend.runs_on_host:
        return tvm.cpu()
    runtime, compiler = backend.runtime(), backend.compiler()
    if runtime is None:
        raise SetupError(f"nothing runs on {backend} here: there is no runtime for it")
    runtime.load()
    if compiler is not None:
        compiler.install()
    return tvm.device(backend.device)


def prepare_forks(target: tvm.target.Target) -> None:
    """Prepare this process for forks that use the device of the target.

    Raises SetupError as `prepare_device`, and if this process has used CUDA already.
    """
    prepare_device(target)
    runtime = backend_of(target).runtime()
    if runtime is not None:
        runtime.check_unused()


def is_off_host(device: tvm.runtime.Device) -> bool:
    """Whether a device is not this processor: a GPU, or one behind TVM's RPC."""
    return int(device.dlpack_device_type()) != int(tvm.cpu().dlpack_device_type())


def copy_to_device(
    tensors: Sequence[tvm.runtime.Tensor], device: tvm.runtime.Device
) -> list[tvm.runtime.Tensor]:
    """Copy tensors to a device, unless it is this processor."""
    return [tensor.copyto(device) for tensor in tensors] if is_off_host(device) else list(tensors)
