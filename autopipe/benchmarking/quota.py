"""How much processor time the control groups of this process let it take.

A container with a quota sees all processors of its host, and may use some of their time. The
others are then nobody's business, however many threads a runtime starts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/proc/self/cgroup")
_ROOT: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = ("max", "-1")


def quota(groups: Path = _GROUPS, root: Path = _ROOT) -> float | None:
    """Return as how many processors that is; None where nobody sets a limit, or says so."""
    try:
        lines = groups.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return None
    limits = [limit for folder in _folders(lines, root) for limit in _limits(folder)]
    return min(limits, default=None)


def _folders(lines: list[str], root: Path) -> Iterator[Path]:
    """Yield the folder of each group that may limit time, and those of the groups it is in.

    In a container, only the last of these may be there.
    """
    for line in lines:
        _, controllers, name = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "cpu" if controllers else root
        group = top / name.lstrip("/")
        yield from (each for each in (group, *group.parents) if each.is_relative_to(top))


def _limits(folder: Path) -> Iterator[float]:
    """Yield the limit of a group, in the words of version 2 and of version 1."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = " ".join((folder / name).read_text("ascii") for name in names).split()
            if words[0] not in _UNLIMITED:
                yield int(words[0]) / int(words[1])
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue
