"""How much memory this machine has, and a ceiling on what a process of ours may take of it."""

import resource
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""What a container gets, of the second and the first version of control groups."""

_CUDA: Final = Path("/dev/nvidiactl")

_LEFT: Final = 8
"""One part in so many of the machine's memory is left to others."""

_LEAST: Final = 2**30


@cache
def machine() -> int:
    """Return the bytes of memory that processes here may have together."""
    pages = resource.getpagesize()
    found = [int(line.split()[1]) << 10 for line in _meminfo() if line.startswith("MemTotal:")]
    for path in _CGROUPS:
        with suppress(OSError, ValueError):
            found.append(int(path.read_text(encoding="ascii")))
    return min((each for each in found if each > pages), default=2**33)


def ceiling() -> int:
    """Return how many bytes of its own a process of ours may have."""
    return max(_LEAST, machine() - machine() // _LEFT)


def hold(limit: int) -> int:
    """Keep this process, and each that it starts, to so many bytes of its own; return how many.

    A limit that is lower already stays. Files that are mapped and addresses that are only reserved,
    of which LLVM takes many, do not count. Beyond it, memory is refused, which ends this process
    and no other; and where the whole machine runs out, the system ends this one first. That is all
    there is beside a GPU, whose driver maps what it never uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = min([limit, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)])
    if not _CUDA.exists():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    return limit


def _meminfo() -> list[str]:
    with suppress(OSError):
        return Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return []
