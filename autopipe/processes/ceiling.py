"""A ceiling on what a process of ours may take of the machine's memory."""

import resource
from pathlib import Path
from typing import Final

from autopipe.host.memory import available
from autopipe.processes.bounds import find_lowest_limit, first_to_go

_CUDA: Final = Path("/dev/nvidiactl")

_LEFT: Final = 8
"""One part in so many of the machine's memory is left to others."""

_LEAST: Final = 2**30


def ceiling() -> int:
    """Return how many bytes of its own a process of ours may have."""
    return max(_LEAST, available() - available() // _LEFT)


def hold(limit: int) -> int:
    """Keep this process, and each that it starts, to so many bytes of its own; return how many.

    A limit that is lower already stays. Files that are mapped and addresses that are only reserved,
    of which LLVM takes many, do not count. Beyond it, memory is refused, which ends this process
    and no other; and where the whole machine runs out, the system ends this one first. That is all
    there is beside a GPU, whose driver maps what it never uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = find_lowest_limit(limit, soft, hard)
    if not _CUDA.exists():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    first_to_go()
    return limit
