"""Work in a forked child, so that a crash, a hang or hunger for memory of it ends there.

A child answers one request after the other. It is forked when it is first asked, from all that
this process knows by then, and again after it ended. Fork only while there is a single thread.
"""

import gc
import json
import re
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Self

from autopipe.errors import StageError, StoreError
from autopipe.host import refusal
from autopipe.processes import failure
from autopipe.processes.bounds import first_to_go, limit_address_space
from autopipe.processes.ending import ask_to_end, end_process
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong, make_link_pair
from autopipe.processes.printed import Printed
from autopipe.processes.start import Forked, fork_process

SECONDS = 120.0
"""After which work that has not answered counts as hung."""

MEMORY = 16 << 30
"""Bytes that work may take beyond what the process it was forked from holds."""

_LONGEST: Final = 500
"""Characters of an error that are worth keeping."""

_LAST_WORDS: Final = 2.0
"""Seconds that a process gets to say where it hangs."""

_OURS: Final = re.compile(r'\n  File "\S*contained\.py", line \d+ in _serve_requests\n')
"""Where a stack that faulthandler has written goes on with what every child has."""

Handler = Callable[[Any], Any]
"""Answers a request; both are JSON values."""


class Failed(StageError):  # noqa: N818 - says what happened
    """Work in a child crashed, hung, took too much memory or raised something."""

    def __init__(self, found: Failure, log: str = "") -> None:
        """Take how it ended, and the end of what it printed."""
        super().__init__(found.message)
        self.how = found.how
        self.log = log


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
        """Fork nothing yet; `begin` is called in the child and returns what answers there.

        `seconds` and `memory` take the place of `SECONDS` and `MEMORY`. What touches a GPU cannot
        be `bounded`: CUDA reserves addresses for all memory there is.
        """
        self._begin = begin
        self.seconds = SECONDS if seconds is None else seconds
        """How long an answer may take."""
        self.memory = (memory or MEMORY) if bounded else None
        """Bytes it may take; null for any number."""
        self._process: Forked
        self._link: Link | None = None
        self._printed: Printed

    @property
    def alive(self) -> bool:
        """Whether the process that answered last is still there."""
        return self._link is not None

    @property
    def link(self) -> Link:
        """What it is talked to over; it can be read when there is an answer, or will be none."""
        assert self._link is not None  # noqa: S101 - it was told something
        return self._link

    def ask(self, request: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the answer. Raises Failed; the next request then finds a sound child.

        Raises StoreError for what a disk or a limit refused: that is no failure of the work.
        """
        self.tell(request)
        return self.answer()

    def tell(self, request: object = None) -> None:
        """Have the child begin with an answer. Raises Failed where it does not even listen."""
        link = self._link or self._fork_child()
        with suppress(EOFError):  # it has ended, which is noticed when it owes an answer
            try:
                link.send(request, self.seconds)
            except TimeoutError:
                raise self._end_hung_child(link) from None

    def answer(self, *, late: bool = False) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to what it was told last. Raises as `ask`.

        One that is `late` has had its time, and answers at once or counts as hung.
        """
        link = self.link
        try:
            found, failed = failure.decode_answer(link.receive(0.0 if late else self.seconds))
        except TimeoutError:
            raise self._end_hung_child(link) from None
        except EOFError:
            status, log = self._end_child(link)
            raise _to_error(failure.describe_ended(status, log), log) from None
        except TooLong:
            raise Failed(failure.describe_garbled(), self._end_child(link)[1]) from None
        if failed is None:
            return found
        log = self._printed.pass_on()
        if failed.how is How.HUNGRY:
            self.close()
        raise _to_error(failed, log)

    def twice(self, request: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the answer, at the second attempt if the first fails. Raises Failed."""
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
        """End a child that hangs, which prints its stack first."""
        ask_to_end(self._process, signal.SIGABRT, _LAST_WORDS)
        return Failed(failure.describe_hung(self.seconds), self._end_child(link)[1])

    def _end_child(self, link: Link) -> tuple[int, str]:
        """End the child and what it started; return its exit status and what it printed."""
        link.close()
        self._link = None
        status = end_process(self._process)
        log = self._printed.pass_on()
        self._printed.close()
        return status or 0, _OURS.split(log)[0]


def _to_error(failed: Failure, log: str) -> StageError | StoreError:
    """Return how work failed; native code that cannot write says so in what it prints."""
    if failed.how is How.HUNGRY:
        return Failed(replace(failed, message=refusal.OUT_OF_MEMORY), log)
    failed = replace(failed, message=failed.message[-_LONGEST:])
    words = refusal.find_refusal(f"{failed.message}\n{log}")
    return (
        StoreError(f"{refusal.find_temporary_folder()}: {words}") if words else Failed(failed, log)
    )


def _serve_requests(begin: Callable[[], Handler], memory: int | None, link: Link) -> None:
    """Answer requests until the other end is closed."""
    first_to_go()
    if memory is not None:
        limit_address_space(memory)
    gc.freeze()  # what the parent made stays; searching through it again takes time
    handler: Handler | None = None
    try:
        while True:
            request = json.loads(link.receive())
            try:
                handler = handler or begin()
                line = failure.encode_answer(handler(request))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it ends here
                with suppress(OSError):  # the disk that it is about may be where it is printed
                    traceback.print_exception(error)
                line = failure.encode_failure(failure.describe_raised(error))
            link.write(line)
    except (EOFError, OSError):  # nobody listens
        return
