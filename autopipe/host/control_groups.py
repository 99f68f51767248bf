"""The control groups of this process, whose files have limits and usage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/proc/self/cgroup")
"""The groups of this process: lines such as `0::/pod` (version 2) or `4:memory:/pod`."""

ROOT: Final = Path("/sys/fs/cgroup")

_UNLIMITED: Final = ("max", "-1")


def folders(controller: str, groups: Path = GROUPS, root: Path = ROOT) -> Iterator[Path]:
    """Yield the folders of the groups of a controller and of their parents.

    The nearest comes first. In a container, only the last may exist: its own group is the root.
    """
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, name = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        group = top / name.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


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
