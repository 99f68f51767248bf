"""How much processor time the control groups of this process let it take.

A container with a quota sees all processors of its host, and may use some of their time. The
others are then nobody's business, however many threads a runtime starts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from autopipe.host.control_groups import GROUPS, ROOT, folders

_UNLIMITED: Final = ("max", "-1")


def read_cpu_quota(groups: Path = GROUPS, root: Path = ROOT) -> float | None:
    """Return as how many processors that is; None where nobody sets a limit, or says so."""
    limits = [limit for folder in folders("cpu", groups, root) for limit in _read_limits(folder)]
    return min(limits, default=None)


def _read_limits(folder: Path) -> Iterator[float]:
    """Yield the limit of a group, in the words of version 2 and of version 1."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = " ".join((folder / name).read_text("ascii") for name in names).split()
            if words[0] not in _UNLIMITED:
                yield int(words[0]) / int(words[1])
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue
