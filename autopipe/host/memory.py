"""Memory limits of this machine, out-of-memory kills, and remedies for messages."""

import math
import os
import resource
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from autopipe.host.control_groups import folders

_GIB: Final = 1 << 30

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

_LIMITS: Final = ("memory.max", "memory.limit_in_bytes")

_EVENTS: Final = ("memory.events", "memory.oom_control")

_TRIM, _MMAP, _ARENAS = -1, -3, -8
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of `mallopt`."""

_LARGEST_BLOCK: Final = 32 << 20
"""The largest value that glibc takes for M_MMAP_THRESHOLD, in bytes."""


class Used(NamedTuple):
    """Resource usage of an ended process."""

    peak: int
    """Peak memory in bytes."""
    seconds: float
    """Processor time."""
    ended: int
    """Processes that the OOM killer ended while it ran."""

    @classmethod
    def of(cls, usage: resource.struct_rusage, before: int | None) -> "Used":
        """Build it from the result of `wait4`, and the count of OOM kills at the start."""
        now = count_oom_kills()
        oom_kills = now - before if now is not None and before is not None else 0
        return cls(usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime, oom_kills)


def resident() -> int:
    """Return the resident memory of this process in bytes; 0 if it is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except OSError:
        return 0


def give_back() -> None:
    """Return freed memory of the C library to the system (`malloc_trim`), if it can.

    By default it keeps freed blocks up to a threshold that grows to 32 MiB.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Make the C library reuse freed blocks of up to 32 MiB (`mallopt`), if it can.

    By default it returns most of them, and the system clears each page again at its next use. So a
    process that copies large arrays all the time takes less CPU. All threads share one arena, since
    those of other threads return what they free. Call it in a process that ends soon after.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM, _GIB)
        mallopt(_MMAP, _LARGEST_BLOCK)
        mallopt(_ARENAS, 1)


def describe_kill(number: int, usage: Used | None = None) -> str:
    """Describe the signal that ended a process, with its probable cause and the remedy."""
    name = f"killed by {signal.Signals(number).name}"
    if number == signal.SIGXCPU or (
        number == signal.SIGKILL and usage and _has_spent_cpu_time(usage)
    ):
        return f"{name}: it has used all the processor time it may have (`ulimit -t`)"
    if number == signal.SIGXFSZ:
        return f"{name}: a file became larger than allowed (`ulimit -f`)"
    if number != signal.SIGKILL:
        return name
    if usage is None:
        return f"{name} (out of memory?)"
    peak = f"it held {usage.peak / _GIB:.1f} GiB at its peak"
    if usage.ended:
        return f"{name}: the kernel ended it for want of memory, {peak}; {suggest_more_memory()}"
    return f"{name} (out of memory? {peak}; {suggest_more_memory()})"


def describe_memory_limit() -> str:
    """Describe the limit on memory and the remedy, as the end of a sentence."""
    limit = read_address_limit()
    return (
        suggest_more_memory()
        if limit == math.inf
        else (f"addresses are limited to {limit / _GIB:.1f} GiB: raise `ulimit -v`")
    )


def read_address_limit() -> float:
    """Return the address space limit of this process in bytes."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if limit == resource.RLIM_INFINITY else limit


def suggest_more_memory() -> str:
    """Describe how to get more memory."""
    total, limit = _read_physical(), available()
    if limit < total:
        return f"this container may have {limit / _GIB:.1f} GiB: give it more"
    return f"this machine has {total / _GIB:.1f} GiB: end other processes, or take a larger one"


def available() -> int:
    """Return the memory of this machine or container in bytes."""
    total = _read_physical()
    return min([total, *filter(None, (_read_number(path) for path in _files(_LIMITS)))])


def _read_physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def count_oom_kills() -> int | None:
    """Return the number of processes that the OOM killer has ended; None if it is unknown.

    It counts those of this container if possible, else those of the machine.
    """
    for place in (*_files(_EVENTS), Path("/proc/vmstat")):
        try:
            words = place.read_text(encoding="ascii").split()
            return int(words[words.index("oom_kill") + 1])
        except (OSError, ValueError, IndexError):
            continue
    return None


def _files(names: Iterable[str]) -> list[Path]:
    """Return the paths of files of the memory controller, nearest group first."""
    return [folder / name for folder in folders("memory") for name in names]


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" is no number
        return None


def _has_spent_cpu_time(usage: Used) -> bool:
    limit, _ = resource.getrlimit(resource.RLIMIT_CPU)
    return limit != resource.RLIM_INFINITY and usage.seconds >= limit - 1
