"""Work that takes memory of the system, and none of what this process has freed and still holds."""

import mmap

MIB = 1 << 20


def take(size: int) -> list[mmap.mmap]:
    """Take so many bytes, and raise what Python raises where a limit is in the way.

    A test process that has built models may hold more free memory than a test lets its child have:
    `bytearray` would be served from there, below every limit.
    """
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        return [mmap.mmap(-1, MIB, flags=private) for _ in range(size // MIB)]
    except OSError:
        raise MemoryError from None
