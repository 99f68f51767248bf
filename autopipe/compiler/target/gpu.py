"""The GPU architecture that a build needs, and a check that the host's GPU can run it."""

from collections.abc import Mapping

from autopipe.environment import cuda
from autopipe.errors import TargetError


def find_required_arch(target: Mapping[str, object]) -> str:
    """Return the architecture that kernels of the target are compiled for."""
    from autopipe.compiler.target.target import make_target

    return str(make_target(target).attrs["arch"])


def check_arch(arch: str) -> None:
    """Raise TargetError if the host's GPU cannot run kernels for an architecture."""
    gpu = cuda.look()
    if isinstance(gpu, str):
        raise TargetError(f"built for {arch}, but {gpu}")
    if not can_run(arch, gpu.arch):
        raise TargetError(f"built for {arch}, but this GPU ({gpu.gpu}) is {gpu.arch}")


def can_run(built_arch: str, gpu_arch: str) -> bool:
    """Tell whether a GPU of one architecture runs kernels that were built for another.

    Kernels for `sm_90a` run on `sm_90a` alone, kernels for `sm_100f` on later members of the same
    family, and kernels for `sm_90` on all later architectures.
    """
    least, has = (int(arch.strip("sm_af")) for arch in (built_arch, gpu_arch))
    if built_arch.endswith("a"):
        return has == least
    return has >= least and (not built_arch.endswith("f") or has // 10 == least // 10)
