"""The processor features that a build needs, and a check that this processor has them.

On a processor that lacks an instruction, a library ends the process by SIGILL without a message.
The check runs before the library is loaded, and names the missing features.
"""

import ctypes
import platform
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from autopipe.environment import toolchain
from autopipe.errors import TargetError
from autopipe.runtime.features import LINUX_FLAGS

_PRODUCTS = "avx512bf16"
"""Dot products of bfloat16."""

TILES: Final = "amx-tile"
"""AMX tiles: registers of 16 rows of 64 bytes. Names of AMX features share the prefix."""
_TILED: Final = "amx-"
ASKS: Final = (158, 0x1023, 18)
"""The system call that requests AMX tiles: the number of `arch_prctl` on x86-64, the request
(ARCH_REQ_XCOMP_PERM) and the feature (XFEATURE_XTILE_DATA)."""

_FITTING: Final = ("sapphirerapids", "icelake-server", "cooperlake", "cascadelake")
"""Intel's processors for servers, the best first."""
_INTEL: Final = "GenuineIntel"


def find_architecture(target: Mapping[str, object]) -> str:
    """Return the architecture a target compiles for, such as `x86_64`."""
    triple = target.get("mtriple")
    return toolchain.find_architecture(str(triple) if triple else None)


def list_required_features(target: Mapping[str, object]) -> tuple[str, ...]:
    """Return the features, in LLVM's names, that code for the target may use."""
    from tvm.target.codegen import llvm_get_cpu_features

    from autopipe.compiler.target.target import make_cpu_target

    return tuple(
        sorted(
            LINUX_FLAGS.keys()
            & {str(name) for name in llvm_get_cpu_features(make_cpu_target(target))}
        )
    )


def check_features(machine: str, mcpu: str, features: Collection[str]) -> None:
    """Raise TargetError if code with some features cannot run on this processor."""
    host = find_architecture({})
    if machine != host:
        raise TargetError(f"built for {machine}, this machine is {host}")
    missing = sorted(set(features) - list_host_features())
    if missing:
        raise TargetError(
            f"built for {mcpu}, but this CPU ({read_cpu_model()}) has no {', '.join(missing)}"
        )


def check_products(target: Mapping[str, object]) -> None:
    """Raise TargetError if the target has no bfloat16 dot products."""
    if _PRODUCTS not in list_required_features(target):
        without = f" without {_PRODUCTS}" if f"-{_PRODUCTS}" in str(target.get("mattr")) else ""
        description = f"{find_architecture(target)}, {target['mcpu']}{without}"
        raise TargetError(
            f"numerics.compute: bfloat16 takes {_PRODUCTS}, which the target lacks: {description}; "
            "such are cooperlake, sapphirerapids, graniterapids, znver4 and znver5"
        )


def list_host_features() -> frozenset[str]:
    """Return the features of the host's processor, in LLVM's names.

    AMX is included if Linux grants this process its use, which is requested here.
    """
    flags = set(f"{_read_cpuinfo('flags')} {_read_cpuinfo('Features')}".split())
    features = frozenset(name for name, flag in LINUX_FLAGS.items() if flag in flags)
    if TILES in features and _request_tiles():
        return features
    return frozenset(name for name in features if not name.startswith(_TILED))


@cache
def _request_tiles() -> bool:
    """Request AMX tiles from Linux, for this process and its children."""
    return ctypes.CDLL(None, use_errno=True).syscall(*ASKS) == 0


def find_llvm_name(reported_name: str) -> str:
    """Return LLVM's name of the host's processor, corrected from the name that LLVM reports.

    A hypervisor may hide the model. LLVM then infers it from a few features, and names a processor
    that lacks others. If so, this is the best of Intel's with features of the host only.
    """
    if _read_cpuinfo("vendor_id") != _INTEL:
        return reported_name
    host_features, reported_features = list_host_features(), _list_features(reported_name)
    fitting = (
        name for name in _FITTING if reported_features < _list_features(name) <= host_features
    )
    return next(fitting, reported_name)


def _list_features(mcpu: str) -> frozenset[str]:
    """Return the features of a processor by LLVM's name."""
    return frozenset(list_required_features({"kind": "llvm", "mcpu": mcpu, "num_cores": 1}))


def read_cpu_model() -> str:
    """Return the name of the host's processor."""
    return _read_cpuinfo("model name") or platform.processor() or platform.machine()


def _read_cpuinfo(field: str) -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""
