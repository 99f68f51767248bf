"""What a forked child prints: on its way to the log of the stage, and at hand if the child dies."""

import faulthandler
import os
import sys
import tempfile
from typing import Final

_TAIL: Final = 1 << 14
"""Bytes that are worth keeping."""

_PASSED: Final = 1 << 16
"""Bytes that are passed on at a time, the last ones of more."""


class Printed:
    """A file without a name that a child prints to; make it before the fork."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._seen = 0

    def take(self) -> None:
        """Have this process print here, and its stacks too if it crashes; called in the child."""
        for stream in (1, 2):
            os.dup2(self._file.fileno(), stream)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", 1, closefd=False) for n in (1, 2))
        faulthandler.disable()  # or it would not take the place of the handlers of native code
        faulthandler.enable(2)

    def pass_on(self) -> str:
        """Print what is new where this process prints; return the end of all."""
        end = os.fstat(self._file.fileno()).st_size
        start = max(self._seen, end - _PASSED)
        os.write(2, os.pread(self._file.fileno(), end - start, start))  # reading moves no offset
        self._seen = end
        tail = os.pread(self._file.fileno(), _TAIL, max(0, end - _TAIL))
        return tail.decode(errors="replace").strip()

    def close(self) -> None:
        """Forget it."""
        self._file.close()
