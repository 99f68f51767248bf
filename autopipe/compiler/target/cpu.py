"""Which features of a processor a build needs, and whether this processor has them.

On a processor that lacks an instruction, a library ends the process by SIGILL without a message.
The check is made before the library is loaded, and says which features are missing.
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
"""Products of bfloat16."""

TILES: Final = "amx-tile"
"""Registers of 16 rows of 64 bytes, Intel's AMX. What computes with them begins as this does."""
_TILED: Final = "amx-"
ASKS: Final = (158, 0x1023, 18)
"""How a process asks Linux for these registers: the number of `arch_prctl` on x86-64, what is asked
for (ARCH_REQ_XCOMP_PERM) and which registers (XFEATURE_XTILE_DATA)."""

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
    """Raise a TargetError if code for that processor can not run on this one."""
    here = find_architecture({})
    if machine != here:
        raise TargetError(f"built for {machine}, this machine is {here}")
    lacking = sorted(set(features) - list_host_features())
    if lacking:
        raise TargetError(
            f"built for {mcpu}, but this CPU ({read_cpu_model()}) has no {', '.join(lacking)}"
        )


def check_products(target: Mapping[str, object]) -> None:
    """Raise a TargetError if the target does not multiply in bfloat16."""
    if _PRODUCTS not in list_required_features(target):
        without = f" without {_PRODUCTS}" if f"-{_PRODUCTS}" in str(target.get("mattr")) else ""
        told = f"{find_architecture(target)}, {target['mcpu']}{without}"
        raise TargetError(
            f"numerics.compute: bfloat16 takes {_PRODUCTS}, which the target lacks: {told}; "
            "such are cooperlake, sapphirerapids, graniterapids, znver4 and znver5"
        )


def list_host_features() -> frozenset[str]:
    """Return the features of this machine's processor, in LLVM's names.

    Those of tiles are among them where Linux lets this process use them, which is asked for.
    """
    flags = set(f"{_read_cpuinfo('flags')} {_read_cpuinfo('Features')}".split())
    found = frozenset(name for name, flag in LINUX_FLAGS.items() if flag in flags)
    if TILES in found and _request_tiles():
        return found
    return frozenset(name for name in found if not name.startswith(_TILED))


@cache
def _request_tiles() -> bool:
    """Ask for the registers of tiles. A process that asked keeps them, as its children do."""
    return ctypes.CDLL(None, use_errno=True).syscall(*ASKS) == 0


def find_llvm_name(told: str) -> str:
    """Return LLVM's name of this machine's processor; `told` is what LLVM takes it for.

    A hypervisor may hide the model. LLVM then goes by a few features, and names a processor that
    lacks others. If so, this is the best of Intel's with nothing that is not here.
    """
    if _read_cpuinfo("vendor_id") != _INTEL:
        return told
    has, known = list_host_features(), _list_features(told)
    fitting = (name for name in _FITTING if known < _list_features(name) <= has)
    return next(fitting, told)


def _list_features(mcpu: str) -> frozenset[str]:
    """Return the features of a processor that is named."""
    return frozenset(list_required_features({"kind": "llvm", "mcpu": mcpu, "num_cores": 1}))


def read_cpu_model() -> str:
    """Return the name of this machine's processor."""
    return _read_cpuinfo("model name") or platform.processor() or platform.machine()


def _read_cpuinfo(field: str) -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""
