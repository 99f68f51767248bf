"""Call a function in a child program: one JSON request in, one JSON answer out.

For work that may crash, spin or leave state behind: reference runtimes, competitors, packages.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from autopipe.errors import AutopipeError, StageError, StoreError
from autopipe.host import refusal
from autopipe.processes import failure
from autopipe.processes.ahead import take_program
from autopipe.processes.ending import end_process
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong, wait_for_readable
from autopipe.processes.start import open_parent_link

Answer = Mapping[str, Any]

_INTERVAL: Final = 0.5
"""Seconds between two calls of `on_wait`."""


def run_module(
    module: str,
    request: Mapping[str, object],
    *,
    timeout: float | None = None,
    on_wait: Callable[[], None] | None = None,
) -> Answer:
    """Run `python -m module` on a request and return its answer.

    `on_wait` is called in short intervals until there is one.

    Raises the AutopipeError of the child; StageError if it crashed, broke, or took longer than
    `timeout` seconds; StoreError for an error of the disk or of a limit.
    """
    process, link, output = take_program(module)
    with output:
        try:
            line = _receive_answer(process, link, request, timeout, on_wait)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise _to_error(failure.describe_hung(timeout or 0.0)) from None
        except TooLong:
            raise _to_error(failure.describe_garbled()) from None
        finally:
            link.close()
            status = end_process(process, group=False)
        if status:
            last = _read_last_line(output.fileno())
            raise _to_error(failure.describe_ended(status, last), last)
    answer, failure_report = failure.decode_answer(line or b"")
    if failure_report is None and not isinstance(answer, dict):
        failure_report = failure.describe_garbled()
    if failure_report is not None:
        raise _to_error(failure_report)
    return dict(answer)


def serve_request(function: Callable[[Answer], Answer]) -> None:
    """Answer one request, as the main program of a child."""
    link = open_parent_link()
    try:
        line = failure.encode_answer(function(json.loads(link.receive())))
    except Exception as error:  # noqa: BLE001 - reported to the parent
        line = failure.encode_failure(failure.describe_refused(error))
    link.write(line)
    sys.stdout.flush()
    os._exit(0)  # skips the destructors of TVM's library, which take 0.1 s


def _receive_answer(
    process: "subprocess.Popen[bytes]",
    link: Link,
    request: Mapping[str, object],
    timeout: float | None,
    on_wait: Callable[[], None] | None,
) -> bytes | None:
    """Send the request and return the answer of a process; None if it ends without one.

    Raises TimeoutError or TimeoutExpired, and TooLong.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    line = None
    with suppress(EOFError):  # its exit status is the reason
        link.send(request, end - time.monotonic())
        while on_wait and time.monotonic() < end and not wait_for_readable([link], _INTERVAL):
            on_wait()
        line = link.receive(end - time.monotonic())
    process.wait(None if timeout is None else max(0.0, end - time.monotonic()))
    return line


def _to_error(report: Failure, last: str = "") -> AutopipeError:
    """Convert a failure to an error; `last` is the last line of the output."""
    if words := refusal.find_refusal(last):
        return StoreError(f"{refusal.find_temporary_folder()}: {words}")
    match report.how:
        case How.REFUSED:
            return report.error()
        case How.RAISED:
            return StageError(f"broke: {report.message.splitlines()[-1]}")
        case How.ENDED:
            return StageError(f"broke: {last}")
        case How.HUNG | How.GARBLED:
            return StageError(f"gave {report.message}")
        case _:
            return StageError(report.message)


def _read_last_line(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, 2000, max(0, size - 2000)).decode(errors="replace")
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
