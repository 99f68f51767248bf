"""Cache sizes of a processor: what the kernel says of this one, a table for one that is named."""

from pathlib import Path
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")

_UNITS = {"K": KIB, "M": MIB, "G": 1024 * MIB}

_TYPICAL: Final = {"l1": 32 * KIB, "l2": 512 * KIB, "l3": 8 * MIB}

_KNOWN: Final = {
    "znver5": {"l1": 48 * KIB, "l2": MIB, "l3": 32 * MIB},
    "znver4": {"l1": 32 * KIB, "l2": MIB, "l3": 32 * MIB},
    "znver": {"l1": 32 * KIB, "l2": 512 * KIB, "l3": 16 * MIB},
    "sapphirerapids": {"l1": 48 * KIB, "l2": 2 * MIB, "l3": 32 * MIB},
    "emeraldrapids": {"l1": 48 * KIB, "l2": 2 * MIB, "l3": 32 * MIB},
    "icelake-server": {"l1": 48 * KIB, "l2": 1280 * KIB, "l3": 24 * MIB},
    "cascadelake": {"l1": 32 * KIB, "l2": MIB, "l3": 16 * MIB},
    "skylake-avx512": {"l1": 32 * KIB, "l2": MIB, "l3": 16 * MIB},
    "skylake": {"l1": 32 * KIB, "l2": 256 * KIB, "l3": 8 * MIB},
    "haswell": {"l1": 32 * KIB, "l2": 256 * KIB, "l3": 8 * MIB},
    "neoverse": {"l1": 64 * KIB, "l2": MIB, "l3": 32 * MIB},
    "cortex-a7": {"l1": 64 * KIB, "l2": 512 * KIB, "l3": 2 * MIB},
}
"""By the first letters of LLVM's names; the first entry that fits."""


def caches(mcpu: str, *, here: bool, folder: Path = _FOLDER) -> dict[str, int]:
    """Return the bytes of `l1`, `l2` and `l3`; `here` asks this machine, as far as it answers."""
    known = next((sizes for name, sizes in _KNOWN.items() if mcpu.startswith(name)), _TYPICAL)
    return {**known, **(_read(folder) if here else {})}


def _read(folder: Path) -> dict[str, int]:
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size")
            )
            if kind != "Instruction" and level in {"1", "2", "3"}:
                found[f"l{level}"] = int(size[:-1]) * _UNITS[size[-1:]]
        except (OSError, ValueError, KeyError):  # not every virtual machine says
            continue
    return found
