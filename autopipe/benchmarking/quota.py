"""The processor time quota of the control groups of this process.

A container with a quota sees all processors of its host, and may use only some of their time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from autopipe.host.control_groups import GROUPS, ROOT, folders

_UNLIMITED: Final = ("max", "-1")


def read_cpu_quota(groups: Path = GROUPS, root: Path = ROOT) -> float | None:
    """Return the quota in processors; None without a limit."""
    limits = [limit for folder in folders("cpu", groups, root) for limit in _read_limits(folder)]
    return min(limits, default=None)


def _read_limits(folder: Path) -> Iterator[float]:
    """Yield the limits of a group in processors, of cgroup version 2 and version 1."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = " ".join((folder / name).read_text("ascii") for name in names).split()
            if words[0] not in _UNLIMITED:
                yield int(words[0]) / int(words[1])
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue
