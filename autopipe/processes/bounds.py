"""What bounds a process: memory, time of processors, sizes of files. A lower bound always stays."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def lower_limit(kind: int, value: int) -> None:
    """Lower a bound of this process, which it could raise again."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (find_lowest_limit(value, hard), hard))


@contextmanager
def lower_limit_within(kind: int, value: int) -> Iterator[None]:
    """Lower a bound of this process for a while."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (find_lowest_limit(value, *before), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def limit_address_space(memory: int) -> None:
    """Keep this process to that many bytes of addresses more than it has, for good."""
    limit = find_lowest_limit(
        measure_address_space() + memory, resource.getrlimit(resource.RLIMIT_AS)[1]
    )
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def limit_data_within(memory: int) -> Iterator[None]:
    """Keep this process to that many bytes of its own more than it has, for a while."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    with lower_limit_within(resource.RLIMIT_DATA, pages * resource.getpagesize() + memory):
        yield


def measure_address_space() -> int:
    """Return how many bytes of addresses this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def first_to_go() -> None:
    """Have the system end this process before others where its memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def find_lowest_limit(value: int, *limits: int) -> int:
    """Return the lowest of some bounds, of which each may be none."""
    return min([value, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])
