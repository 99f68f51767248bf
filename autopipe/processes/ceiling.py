"""A limit on the memory of autopipe's processes."""

import resource
from pathlib import Path
from typing import Final

from autopipe.host.memory import available
from autopipe.processes.bounds import find_lowest_limit, first_to_go

_CUDA: Final = Path("/dev/nvidiactl")

_LEFT: Final = 8
"""One eighth of the machine's memory is left to other processes."""

_LEAST: Final = 2**30


def ceiling() -> int:
    """Return the memory limit of a process in bytes."""
    return max(_LEAST, available() - available() // _LEFT)


def hold(limit: int) -> int:
    """Limit the data segments of this process and its children; return the effective limit.

    A lower limit stays. Mapped files and reserved addresses, of which LLVM has many, do not count.
    Beyond the limit, allocations fail, which ends only this process; if the machine runs out of
    memory, the OOM killer ends this process first. Only the latter holds with a GPU, whose driver
    maps memory that it never uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = find_lowest_limit(limit, soft, hard)
    if not _CUDA.exists():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    first_to_go()
    return limit
