"""Resource limits of processes: memory, processor time, file sizes. They are never raised."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from autopipe.host.memory import available

_CUDA: Final = Path("/dev/nvidiactl")

_LEFT: Final = 8
"""One eighth of the machine's memory is left to other processes."""

_LEAST: Final = 2**30


def lower_limit(kind: int, value: int) -> None:
    """Lower a soft limit of this process."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (find_lowest_limit(value, hard), hard))


@contextmanager
def lower_limit_within(kind: int, value: int) -> Iterator[None]:
    """Lower a soft limit of this process temporarily."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (find_lowest_limit(value, *before), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def limit_address_space(memory: int) -> None:
    """Limit the address space of this process to `memory` bytes beyond the present, permanently."""
    limit = find_lowest_limit(
        measure_address_space() + memory, resource.getrlimit(resource.RLIMIT_AS)[1]
    )
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def limit_data_within(memory: int) -> Iterator[None]:
    """Limit the data segment of this process to `memory` bytes beyond the present, temporarily."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    with lower_limit_within(resource.RLIMIT_DATA, pages * resource.getpagesize() + memory):
        yield


def measure_address_space() -> int:
    """Return the size of the address space of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def first_to_go() -> None:
    """Make this process the first that the OOM killer ends."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def find_lowest_limit(value: int, *limits: int) -> int:
    """Return the minimum of some limits, ignoring infinite ones."""
    return min([value, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])


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
