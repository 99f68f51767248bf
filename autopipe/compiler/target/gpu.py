"""Which GPU architecture a build needs, and whether the GPU of this machine can run it."""

from collections.abc import Mapping

from autopipe.environment import cuda
from autopipe.errors import TargetError


def find_required_arch(target: Mapping[str, object]) -> str:
    """Return the architecture that kernels of the target are compiled for."""
    from autopipe.compiler.target.target import make_target

    return str(make_target(target).attrs["arch"])


def check_arch(arch: str) -> None:
    """Raise a TargetError if kernels for that architecture can not run here."""
    found = cuda.look()
    if isinstance(found, str):
        raise TargetError(f"built for {arch}, but {found}")
    if not can_run(arch, found.arch):
        raise TargetError(f"built for {arch}, but this GPU ({found.gpu}) is {found.arch}")


def can_run(built: str, here: str) -> bool:
    """Tell whether a GPU runs the kernels that were built for another architecture.

    Kernels for `sm_90a` run on `sm_90a` alone, kernels for `sm_100f` on later members of the same
    family, and kernels for `sm_90` on all later architectures.
    """
    least, has = (int(arch.strip("sm_af")) for arch in (built, here))
    if built.endswith("a"):
        return has == least
    return has >= least and (not built.endswith("f") or has // 10 == least // 10)
