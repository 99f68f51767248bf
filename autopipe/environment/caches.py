"""Cache sizes of a processor: from the kernel for this machine, else from the table."""

from pathlib import Path
from typing import Final

from autopipe.environment.machines import KIB, MIB, Machine

SYSTEM_FOLDER: Final = Path("/sys/devices/system/cpu/cpu0/cache")

_UNITS: Final = {"K": KIB, "M": MIB, "G": 1024 * MIB}


def find_cache_sizes(
    machine: Machine, *, here: bool, folder: Path = SYSTEM_FOLDER
) -> dict[str, int]:
    """Return the bytes of `l1`, `l2` and `l3`; with `here`, those of this machine if known."""
    row = {"l1": machine.l1_bytes, "l2": machine.l2_bytes, "l3": machine.l3_bytes}
    return {**row, **(read_sizes(folder) if here else {})}


def read_line(folder: Path) -> int | None:
    """Read the bytes of a cache line from sysfs; None if they are not there."""
    try:
        return int((folder / "index0" / "coherency_line_size").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def read_sizes(folder: Path) -> dict[str, int]:
    """Read the bytes of `l1`, `l2` and `l3` from sysfs, as far as they are there."""
    sizes = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size")
            )
            if kind != "Instruction" and level in {"1", "2", "3"}:
                sizes[f"l{level}"] = int(size[:-1]) * _UNITS[size[-1:]]
        except (OSError, ValueError, KeyError):  # missing in some virtual machines
            continue
    return sizes
