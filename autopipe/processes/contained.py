"""Run work in a forked child, which contains crashes, hangs and memory overruns.

A child answers one request after the other. It is forked at the first request, with the state of
this process at that time, and again after it ended. Fork only while there is a single thread.
"""

import faulthandler
import gc
import json
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

from autopipe.errors import StageError, StoreError
from autopipe.host import refusal
from autopipe.processes import failure
from autopipe.processes.bounds import first_to_go, limit_address_space
from autopipe.processes.ending import ask_to_end, end_process
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong, make_link_pair
from autopipe.processes.start import Forked, fork_process

SECONDS = 120.0
"""After which work that has not answered counts as hung."""

MEMORY = 16 << 30
"""Memory limit of work in bytes, beyond that of the parent process at the fork."""

_LONGEST: Final = 500
"""Maximum length of an error."""

_LAST_WORDS: Final = 2.0
"""Seconds that a hung process has to print its stack."""

_OURS: Final = re.compile(r'\n  File "\S*contained\.py", line \d+ in _serve_requests\n')
"""The first stack frame of faulthandler that is common to all children."""

Handler = Callable[[Any], Any]
"""Answers a request; both are JSON values."""

_TAIL: Final = 1 << 14
"""Bytes of the end of the output that are kept."""

_PASSED: Final = 1 << 16
"""Maximum bytes that are copied at a time; earlier ones are dropped."""


class Failed(StageError):  # noqa: N818 - says what happened
    """Work in a child crashed, hung, exceeded its memory or raised an exception."""

    def __init__(self, report: Failure, log: str = "") -> None:
        """Store the failure, and the end of the output."""
        super().__init__(report.message)
        self.report = report
        self.log = log

    @property
    def how(self) -> How:
        """The kind of its end."""
        return self.report.how


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


class Child:
    """A process that answers requests."""

    def __init__(
        self,
        begin: Callable[[], Handler],
        *,
        seconds: float | None = None,
        memory: int | None = None,
        bounded: bool = True,
    ) -> None:
        """Configure the child without forking; `begin` is called in it and returns its handler.

        `seconds` and `memory` replace `SECONDS` and `MEMORY`. Work on a GPU cannot be `bounded`:
        CUDA reserves addresses for all memory there is.
        """
        self._begin = begin
        self.seconds = SECONDS if seconds is None else seconds
        """Time limit of an answer."""
        self.memory = (memory or MEMORY) if bounded else None
        """Memory limit in bytes; None for no limit."""
        self._process: Forked
        self._link: Link | None = None
        self._printed: Printed

    @property
    def alive(self) -> bool:
        """Whether the child process exists."""
        return self._link is not None

    @property
    def link(self) -> Link:
        """The link to the child; readable when there is an answer, or the child ended."""
        assert self._link is not None  # noqa: S101 - it has a request
        return self._link

    def ask(self, request: object = None) -> Any:  # noqa: ANN401 - JSON
        """Send a request and return the answer. Raises Failed; the next request then forks anew.

        Raises StoreError for an error of the disk or of a limit, which is no failure of the work.
        """
        self.tell(request)
        return self.answer()

    def tell(self, request: object = None) -> None:
        """Send a request without waiting for the answer. Raises Failed if the child hangs."""
        link = self._link or self._fork_child()
        with suppress(EOFError):  # it has ended, which `answer` notices
            try:
                link.send(request, self.seconds)
            except TimeoutError:
                raise self._end_hung_child(link) from None

    def answer(self, *, late: bool = False) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to the last request. Raises the errors of `ask`.

        With `late`, its time is over: it answers at once or counts as hung.
        """
        link = self.link
        try:
            answer, report = failure.decode_answer(link.receive(0.0 if late else self.seconds))
        except TimeoutError:
            raise self._end_hung_child(link) from None
        except EOFError:
            status, log = self._end_child(link)
            raise _to_error(failure.describe_ended(status, log), log) from None
        except TooLong:
            raise Failed(failure.describe_garbled(), self._end_child(link)[1]) from None
        if report is None:
            return answer
        log = self._printed.pass_on()
        if report.how is How.HUNGRY:
            self.close()
        raise _to_error(report, log)

    def twice(self, request: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the answer, retrying once after a failure. Raises Failed."""
        try:
            return self.ask(request)
        except Failed:
            self.close()
            return self.ask(request)

    def close(self) -> None:
        """End the child."""
        if self._link is not None:
            self._end_child(self._link)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fork_child(self) -> Link:
        ours, theirs = make_link_pair()
        self._printed = Printed()

        def work() -> None:
            ours.close()
            self._printed.take()
            _serve_requests(self._begin, self.memory, theirs)

        self._process = fork_process(work)
        theirs.close()
        self._link = ours
        return ours

    def _end_hung_child(self, link: Link) -> Failed:
        """End a hung child after it printed its stack."""
        ask_to_end(self._process, signal.SIGABRT, _LAST_WORDS)
        return Failed(failure.describe_hung(self.seconds), self._end_child(link)[1])

    def _end_child(self, link: Link) -> tuple[int, str]:
        """End the child and its process group; return its exit status and output."""
        link.close()
        self._link = None
        status = end_process(self._process)
        log = self._printed.pass_on()
        self._printed.close()
        return status or 0, _OURS.split(log)[0]


def _to_error(report: Failure, log: str) -> StageError | StoreError:
    """Convert a failure to an error; the output tells if native code could not write."""
    if report.how is How.HUNGRY:
        return Failed(report._replace(message=refusal.OUT_OF_MEMORY), log)
    report = report._replace(message=report.message[-_LONGEST:])
    words = refusal.find_refusal(f"{report.message}\n{log}")
    return (
        StoreError(f"{refusal.find_temporary_folder()}: {words}") if words else Failed(report, log)
    )


def _serve_requests(begin: Callable[[], Handler], memory: int | None, link: Link) -> None:
    """Answer requests until the other end is closed."""
    first_to_go()
    if memory is not None:
        limit_address_space(memory)
    gc.freeze()  # objects of the parent are not scanned again
    handler: Handler | None = None
    try:
        while True:
            request = json.loads(link.receive())
            try:
                handler = handler or begin()
                line = failure.encode_answer(handler(request))
            except BaseException as error:  # noqa: BLE001 - all errors are reported
                with suppress(OSError):  # the output may be on the full disk
                    traceback.print_exception(error)
                line = failure.encode_failure(
                    error.report  # of a child of this one
                    if isinstance(error, Failed)
                    else failure.describe_raised(error)
                )
            link.write(line)
    except (EOFError, OSError):  # the parent closed the link
        return
