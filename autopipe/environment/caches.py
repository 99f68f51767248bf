"""Cache sizes of a processor: those that the kernel states of this one, else those of its row."""

from pathlib import Path
from typing import Final

from autopipe.environment.machines import KIB, MIB, Machine

_FOLDER: Final = Path("/sys/devices/system/cpu/cpu0/cache")

_UNITS: Final = {"K": KIB, "M": MIB, "G": 1024 * MIB}


def caches(machine: Machine, *, here: bool, folder: Path = _FOLDER) -> dict[str, int]:
    """Return the bytes of `l1`, `l2` and `l3`; `here` asks this machine, as far as it answers."""
    row = {"l1": machine.l1_bytes, "l2": machine.l2_bytes, "l3": machine.l3_bytes}
    return {**row, **(_read(folder) if here else {})}


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
