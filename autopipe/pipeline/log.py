"""The output of a child process: a file up to a size limit, and its end in memory."""

import os
import re
from pathlib import Path
from typing import Final, Self

from autopipe.store import files

_LIMIT: Final = 1 << 20
_TAIL: Final = 4096
_CONTROL: Final = r"[^\n\t\x20-\x7e\xa0-\uffff]|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Compiled where it is used: that takes milliseconds, and a cached run prints nothing."""


class Log:
    """A file that keeps the first MiB of the output and its last 4 KiB.

    All methods raise StoreError.
    """

    def __init__(self, path: Path) -> None:
        """Open a new file, replacing an existing one."""
        self.path = path
        self._written = 0
        self._tail = b""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with files.wrap_os_errors(path):
            files.remove(path)
            self._file = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)

    def write(self, data: bytes) -> None:
        """Append output; beyond the limit only its end is kept."""
        with files.wrap_os_errors(self.path):
            self._file.write(data[: max(0, _LIMIT - self._written)])
        self._written += len(data)
        self._tail = (self._tail + data)[-_TAIL:]

    def tail(self, lines: int = 10) -> str:
        """Return the last lines, with control characters replaced."""
        text = re.sub(_CONTROL, "?", self._tail.decode(errors="replace"))
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with files.wrap_os_errors(self.path), self._file:
            left_out = self._written - _LIMIT - len(self._tail)
            if left_out > 0:
                self._file.write(f"\n[{left_out} bytes left out]\n".encode())
            if self._written > _LIMIT:
                self._file.write(self._tail[-(self._written - _LIMIT) :])
