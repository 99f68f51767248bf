"""Write files that are mapped later in long writes."""

from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, Final, Self

STRETCH: Final = 8 << 20
"""Bytes of a write. With writes of this size, Linux caches and maps a file in large pages: a model
that reads 98 MiB of weights takes a sixth less time."""


MIB: Final = 1 << 20
"""Bytes of the unit of progress."""


CountBytes = Callable[[int], Callable[[int], None]]
"""Takes the bytes of some work; its result gets those of each part that is done."""


def count_nothing(_: int) -> Callable[[int], None]:
    """Count no bytes."""
    return lambda _: None


def count_mib(
    begin: Callable[[int], Callable[[int], None]], total: int, *, passes: int = 1
) -> Callable[[int], None]:
    """Begin a count of `total` bytes in MiB; the result receives the bytes of each part.

    `begin` takes the number of MiB, and what it returns the number of those that are done. Each
    byte is a part of several `passes`.
    """
    report, done = begin(total // MIB), 0

    def add(part: int) -> None:
        nonlocal done
        done += part
        report(done // passes // MIB)

    return add


def copy_content(
    source: BinaryIO, out: BinaryIO, report: Callable[[int], None] = lambda _: None
) -> None:
    """Copy the rest of a file in long writes; `report` gets the bytes of each. Raises OSError."""
    while part := source.read(STRETCH):
        out.write(part)
        report(len(part))


class LongWriter:
    """Writes `STRETCH` bytes at a time, for parts of any length.

    Python's own buffer would be flushed partly filled when the next part does not fit.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._waiting = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        """Append the next bytes. Raises OSError."""
        rest = memoryview(data)
        while rest:
            part = rest[: STRETCH - len(self._waiting)]
            self._waiting += part
            rest = rest[len(part) :]
            if len(self._waiting) == STRETCH:
                self._flush()

    def _flush(self) -> None:
        self._out.write(self._waiting)
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        with self._out:  # closed on a full disk, too
            if error is None:
                self._flush()
