"""How much memory there is, who was ended for want of it, and what can be done."""

import math
import os
import resource
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.host.control_groups import folders

_GIB: Final = 1 << 30

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

_LIMITS: Final = ("memory.max", "memory.limit_in_bytes")

_EVENTS: Final = ("memory.events", "memory.oom_control")


@dataclass(frozen=True, slots=True)
class Used:
    """What the kernel says of a process that has ended."""

    peak: int
    """Bytes of memory it held at most."""
    seconds: float
    """Of processors."""
    ended: int
    """Processes that the kernel ended for want of memory while it ran."""

    @classmethod
    def of(cls, usage: resource.struct_rusage, before: int | None) -> "Used":
        """Take what `wait4` says, and how many were ended when the process began."""
        now = count_oom_kills()
        ended = now - before if now is not None and before is not None else 0
        return cls(usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime, ended)


def resident() -> int:
    """Return the bytes of this process that are in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except OSError:
        return 0


def give_back() -> None:
    """Have the C library return what was freed to the system, where it has a function for that.

    By itself it keeps freed blocks up to a size that grows to 32 MiB, among others that are in use.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def describe_kill(number: int, used: Used | None = None) -> str:
    """Say what ended a process: the signal, and as far as is known who sent it, and what to do."""
    name = f"killed by {signal.Signals(number).name}"
    if number == signal.SIGXCPU or (
        number == signal.SIGKILL and used and _has_spent_cpu_time(used)
    ):
        return f"{name}: it has used all the processor time it may have (`ulimit -t`)"
    if number == signal.SIGXFSZ:
        return f"{name}: a file became larger than allowed (`ulimit -f`)"
    if number != signal.SIGKILL:
        return name
    if used is None:
        return f"{name} (out of memory?)"
    held = f"it held {used.peak / _GIB:.1f} GiB at its peak"
    if used.ended:
        return f"{name}: the kernel ended it for want of memory, {held}; {suggest_more_memory()}"
    return f"{name} (out of memory? {held}; {suggest_more_memory()})"


def describe_memory_limit() -> str:
    """Say what limits memory, and what to do about it, in words that go on a sentence."""
    limit = read_address_limit()
    return (
        suggest_more_memory()
        if limit == math.inf
        else (f"addresses are limited to {limit / _GIB:.1f} GiB: raise `ulimit -v`")
    )


def read_address_limit() -> float:
    """Return how many bytes of addresses this process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if limit == resource.RLIM_INFINITY else limit


def suggest_more_memory() -> str:
    """Say how there could be more memory."""
    total, limit = _read_physical(), available()
    if limit < total:
        return f"this container may have {limit / _GIB:.1f} GiB: give it more"
    return f"this machine has {total / _GIB:.1f} GiB: end other processes, or take a larger one"


def available() -> int:
    """Return the bytes of memory that processes here may have together."""
    total = _read_physical()
    return min([total, *filter(None, (_read_number(path) for path in _files(_LIMITS)))])


def _read_physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def count_oom_kills() -> int | None:
    """Return how many processes the kernel has ended for want of memory; None if it does not say.

    Those of this container where it counts them, else of the machine.
    """
    for place in (*_files(_EVENTS), Path("/proc/vmstat")):
        try:
            words = place.read_text(encoding="ascii").split()
            return int(words[words.index("oom_kill") + 1])
        except (OSError, ValueError, IndexError):
            continue
    return None


def _files(names: Iterable[str]) -> list[Path]:
    """Return where the kernel may tell of the memory of this process, nearest first."""
    return [folder / name for folder in folders("memory") for name in names]


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" is no number
        return None


def _has_spent_cpu_time(used: Used) -> bool:
    limit, _ = resource.getrlimit(resource.RLIMIT_CPU)
    return limit != resource.RLIM_INFINITY and used.seconds >= limit - 1
