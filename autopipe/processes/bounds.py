"""What bounds a process: memory, time of processors, sizes of files. A lower bound always stays."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def lower(kind: int, value: int) -> None:
    """Lower a bound of this process, which it could raise again."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (least(value, hard), hard))


@contextmanager
def lowered(kind: int, value: int) -> Iterator[None]:
    """Lower a bound of this process for a while."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (least(value, *before), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def bound(memory: int) -> None:
    """Keep this process to that many bytes of addresses more than it has, for good."""
    limit = least(addresses() + memory, resource.getrlimit(resource.RLIMIT_AS)[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def held(memory: int) -> Iterator[None]:
    """Keep this process to that many bytes of its own more than it has, for a while."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    with lowered(resource.RLIMIT_DATA, pages * resource.getpagesize() + memory):
        yield


def addresses() -> int:
    """Return how many bytes of addresses this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def first_to_go() -> None:
    """Have the system end this process before others where its memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def least(value: int, *limits: int) -> int:
    """Return the lowest of some bounds, of which each may be none."""
    return min([value, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])
