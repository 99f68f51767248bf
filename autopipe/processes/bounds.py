"""Resource limits of a process: memory, processor time, file sizes. They are never raised."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
