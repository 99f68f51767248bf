"""A function in a program of its own: one JSON request in, one JSON answer out.

For work that may crash, spin or leave state behind: reference runtimes, contenders, packages.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, NamedTuple

from autopipe.errors import AutopipeError, StageError, StoreError
from autopipe.host import refusal
from autopipe.processes import failure
from autopipe.processes.ending import end_process
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong
from autopipe.processes.start import open_parent_link, program

Answer = Mapping[str, Any]

_NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}
"""From 1.29 on, importing onnxruntime uploads what it learns, unless this is set before."""


class _WaitingProgram(NamedTuple):
    process: "subprocess.Popen[bytes]"
    link: Link
    printed: IO[bytes]
    """What it prints."""


_AHEAD: Final[dict[str, _WaitingProgram]] = {}
"""Programs that are started, by the module that they run, and have no request yet."""


@contextmanager
def start_ahead(module: str) -> Iterator[None]:
    """Start the program of a module at once, so that its imports do not wait for the request.

    The next `run_module` of the module takes it. One that nobody took is ended.
    """
    _AHEAD[module] = _start_program(module)
    try:
        yield
    finally:
        if module in _AHEAD:
            unused = _AHEAD.pop(module)
            unused.link.close()
            end_process(unused.process, group=False)
            unused.printed.close()


def _start_program(module: str) -> _WaitingProgram:
    printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the program
    try:
        return _WaitingProgram(
            *program(module, printed, more=_NO_TELEMETRY, session=False), printed
        )
    except BaseException:
        printed.close()
        raise


def run_module(
    module: str, request: Mapping[str, object], *, timeout: float | None = None
) -> Answer:
    """Run `python -m module` on a request and return what it answers.

    Raises the AutopipeError the child raised; StageError where it crashed, broke, or took longer
    than `timeout` seconds; StoreError where a disk or a limit refused something.
    """
    started = _AHEAD.pop(module) if module in _AHEAD else _start_program(module)
    process, link, printed = started
    with printed:
        try:
            line = _receive_answer(process, link, request, timeout)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise _to_error(failure.describe_hung(timeout or 0.0)) from None
        except TooLong:
            raise _to_error(failure.describe_garbled()) from None
        finally:
            link.close()
            status = end_process(process, group=False)
        if status:
            last = _read_last_line(printed.fileno())
            raise _to_error(failure.describe_ended(status, last), last)
    found, failed = failure.decode_answer(line or b"")
    if failed is None and not isinstance(found, dict):
        failed = failure.describe_garbled()
    if failed is not None:
        raise _to_error(failed)
    return dict(found)


def serve_request(function: Callable[[Answer], Answer]) -> None:
    """Answer the one request, as the main program of a child."""
    link = open_parent_link()
    try:
        line = failure.encode_answer(function(json.loads(link.receive())))
    except Exception as error:  # noqa: BLE001 - the parent is told
        line = failure.encode_failure(failure.describe_refused(error))
    link.write(line)
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do: TVM's library takes 0.1 s to be taken down


def _receive_answer(
    process: "subprocess.Popen[bytes]",
    link: Link,
    request: Mapping[str, object],
    timeout: float | None,
) -> bytes | None:
    """Return what a process answers before it ends; null if nothing.

    Raises TimeoutError or TimeoutExpired, and TooLong.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    line = None
    with suppress(EOFError):  # how it ends says why
        link.send(request, end - time.monotonic())
        line = link.receive(end - time.monotonic())
    process.wait(None if timeout is None else max(0.0, end - time.monotonic()))
    return line


def _to_error(failed: Failure, last: str = "") -> AutopipeError:
    """Return what is raised here for it; `last` is the last line that was printed."""
    if words := refusal.find_refusal(last):
        return StoreError(f"{refusal.find_temporary_folder()}: {words}")
    match failed.how:
        case How.REFUSED:
            return failed.error()
        case How.RAISED:
            return StageError(f"broke: {failed.message.splitlines()[-1]}")
        case How.ENDED:
            return StageError(f"broke: {last}")
        case How.HUNG | How.GARBLED:
            return StageError(f"gave {failed.message}")
        case _:
            return StageError(failed.message)


def _read_last_line(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, 2000, max(0, size - 2000)).decode(errors="replace")
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
