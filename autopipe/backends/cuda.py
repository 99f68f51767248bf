"""Backend `cuda`: NVIDIA's GPUs, compiled by nvcc, with or without a GPU."""

from collections.abc import Mapping
from typing import ClassVar, Final

from autopipe.backends.backend import Backend
from autopipe.backends.device import DeviceRuntime, KernelCompiler


class Cuda(Backend):
    """NVIDIA's GPUs."""

    kind = "cuda"
    device = "cuda"
    fields: ClassVar[Mapping[str, str]] = {
        "arch": "is for kind cuda; a processor is named by mcpu",
    }
    limits: ClassVar[Mapping[str, object]] = {
        "max_shared_memory_per_block": 48 << 10,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": 1 << 16,
    }  # the defaults of a block on every GPU of these architectures

    def target_attributes(self, facts: Mapping[str, object]) -> Mapping[str, object]:  # noqa: D102 - as in Backend
        from autopipe.compiler.target import cuda_target

        attributes = cuda_target.find_arch_attributes(str(facts["arch"]))
        return {"kind": self.kind, **attributes, **self.limits}

    def resolve_architecture(self, name: str | None) -> str:  # noqa: D102
        from autopipe.environment import cuda

        return cuda.find_native_arch() if name in {None, "native"} else str(name)

    def required_architecture(self, facts: Mapping[str, object]) -> str:  # noqa: D102
        from autopipe.compiler.target import gpu

        return gpu.find_required_arch(facts)

    def check_device(self, facts: Mapping[str, object]) -> None:  # noqa: D102
        from autopipe.compiler.target import gpu

        gpu.check_arch(gpu.find_required_arch(facts))

    def describe_device(self) -> Mapping[str, object]:  # noqa: D102
        from autopipe.environment import cuda

        return cuda.describe_gpu()

    def describe_toolchain(self) -> Mapping[str, object]:  # noqa: D102
        from autopipe.environment import cuda

        return cuda.toolchain()

    def compiler(self) -> KernelCompiler:  # noqa: D102
        from autopipe.compiler.library import nvcc

        return nvcc

    def runtime(self) -> DeviceRuntime:  # noqa: D102
        from autopipe.compiler.library import cuda_runtime

        return cuda_runtime


CUDA: Final = Cuda()
