"""The output of a forked child: copied to the log of the stage, and kept if the child dies."""

import faulthandler
import os
import sys
import tempfile
from typing import Final

_TAIL: Final = 1 << 14
"""Bytes of the end of the output that are kept."""

_PASSED: Final = 1 << 16
"""Maximum bytes that are copied at a time; earlier ones are dropped."""


class Printed:
    """An anonymous file for the output of a child; create it before the fork."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._seen = 0

    def take(self) -> None:
        """Redirect the output of this process, and stacks of crashes; called in the child."""
        for stream in (1, 2):
            os.dup2(self._file.fileno(), stream)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", 1, closefd=False) for n in (1, 2))
        faulthandler.disable()  # so that enabling replaces the handlers of native code
        faulthandler.enable(2)

    def pass_on(self) -> str:
        """Copy new output to that of this process; return the end of all output."""
        end = os.fstat(self._file.fileno()).st_size
        start = max(self._seen, end - _PASSED)
        os.write(2, os.pread(self._file.fileno(), end - start, start))  # reading moves no offset
        self._seen = end
        tail = os.pread(self._file.fileno(), _TAIL, max(0, end - _TAIL))
        return tail.decode(errors="replace").strip()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
