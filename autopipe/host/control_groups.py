"""The control groups of this process, whose files say how much it may take, and has taken."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/proc/self/cgroup")
"""What groups this process is in: a line each, as `0::/pod` (version 2) or `4:memory:/pod`."""

ROOT: Final = Path("/sys/fs/cgroup")


def folders(controller: str, groups: Path = GROUPS, root: Path = ROOT) -> Iterator[Path]:
    """Yield the folder of each group that this controller counts for, and those it is in.

    The nearest comes first. In a container, only the last of them may be there: it sees its own
    group as the root.
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
