"""Start the program of a child before its request is known.

This imports little, because *infer* starts its child before it imports anything else.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final, NamedTuple

from autopipe.processes.ending import end_process
from autopipe.processes.link import Link
from autopipe.processes.start import program

_NO_TELEMETRY: Final = {"ORT_DISABLE_TELEMETRY": "1"}
"""From 1.29 on, importing onnxruntime uploads telemetry, unless this is set before."""


class WaitingProgram(NamedTuple):
    """A program that waits for its request."""

    process: "subprocess.Popen[bytes]"
    link: Link
    printed: IO[bytes]
    """The file of its output."""


_AHEAD: Final[dict[str, WaitingProgram]] = {}
"""Started programs without a request, by module."""


@contextmanager
def start_ahead(module: str) -> Iterator[None]:
    """Start the program of a module now, so that its imports overlap with preparing the request.

    The next `take_program` of the module returns it, or reports that it cannot be started. An
    unused one is ended.
    """
    with suppress(OSError):
        _AHEAD[module] = _start_program(module)
    try:
        yield
    finally:
        if module in _AHEAD:
            waiting = _AHEAD.pop(module)
            waiting.link.close()
            end_process(waiting.process, group=False)
            waiting.printed.close()


def take_program(module: str) -> WaitingProgram:
    """Return the program that was started ahead, or start one. Raises OSError."""
    return _AHEAD.pop(module) if module in _AHEAD else _start_program(module)


def _start_program(module: str) -> WaitingProgram:
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the program
    try:
        return WaitingProgram(
            *program(module, output, variables=_NO_TELEMETRY, session=False), output
        )
    except BaseException:
        output.close()
        raise
