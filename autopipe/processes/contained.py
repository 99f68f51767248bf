"""Work in a forked child, so that a crash, a hang or hunger for memory of it ends there.

A child answers one request after the other. It is forked when it is first asked, from all that
this process knows by then, and again after it ended. Fork only while there is a single thread.
"""

import gc
import json
import os
import re
import resource
import signal
import socket
import struct
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from autopipe.errors import StageError, StoreError
from autopipe.host import refusal
from autopipe.host.memory import killed
from autopipe.host.refusal import OUT_OF_MEMORY
from autopipe.processes.lifeline import die_with_parent
from autopipe.processes.printed import Printed

SECONDS = 120.0
"""After which work that has not answered counts as hung."""

MEMORY = 16 << 30
"""Bytes that work may take beyond what the process it was forked from holds."""

_LONGEST: Final = 500
"""Characters of an error that are worth keeping."""

_LAST_WORDS: Final = 2.0
"""Seconds that a process gets to say where it hangs."""

_OURS: Final = re.compile(r'\n  File "\S*contained\.py", line \d+ in _serve\n')
"""Where a stack that faulthandler has written goes on with what every child has."""

Handler = Callable[[Any], Any]
"""Answers a request; both are JSON values."""


class Failed(StageError):  # noqa: N818 - says what happened
    """Work in a child crashed, hung, took too much memory or raised something."""

    def __init__(self, how: str, log: str = "") -> None:
        """Take how it ended, in a line, and the end of what it printed."""
        super().__init__(how)
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

        `seconds` and `memory` take the place of `SECONDS` and `MEMORY`. What touches a GPU can not
        be `bounded`: CUDA reserves addresses for all memory there is.
        """
        self._begin = begin
        self.seconds = SECONDS if seconds is None else seconds
        """How long an answer may take."""
        self.memory = (memory or MEMORY) if bounded else None
        """Bytes it may take; null for any number."""
        self._pid = 0
        self._link: Connection | None = None
        self._printed: Printed

    @property
    def alive(self) -> bool:
        """Whether the process that answered last is still there."""
        return self._link is not None

    def ask(self, request: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the answer. Raises Failed; the next request then finds a sound child.

        Raises StoreError for what a disk or a limit refused: that is no failure of the work.
        """
        link = self._link or self._start()
        try:
            _limit(link, self.seconds)
            link.send_bytes(json.dumps(request).encode())
            if not link.poll(self.seconds):
                raise BlockingIOError  # noqa: TRY301 - as where it stops in the middle
            answer = _answered(link.recv_bytes())
        except BlockingIOError:
            raise Failed(f"no answer within {self.seconds:g} s", self._hung(link)) from None
        except (EOFError, OSError):
            raise self._dead(link) from None
        if "ok" in answer:
            return answer["ok"]
        log = self._printed.pass_on()
        hungry = answer.get("hungry") is True
        if hungry:
            self.close()
        raise _failed(OUT_OF_MEMORY if hungry else str(answer.get("error")), log)

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
            self._bury(self._link)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        self._printed = Printed()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _serve(self._begin, self.memory, theirs, self._printed, parent)
        theirs.close()
        with suppress(OSError):  # the child was quicker, or is gone
            os.setpgid(self._pid, self._pid)
        self._link = ours
        return ours

    def _dead(self, link: Connection) -> StageError | StoreError:
        status, log = self._bury(link)
        if refusal.hunger(log):
            return Failed(OUT_OF_MEMORY, log)
        how = killed(-status) if status < 0 else f"ended by itself, with status {status}"
        return _failed(how, log)

    def _hung(self, link: Connection) -> str:
        """End a child that hangs, and return what it said, with its stack at the end."""
        os.kill(self._pid, signal.SIGABRT)
        with suppress(EOFError, OSError):
            link.poll(_LAST_WORDS)
        return self._bury(link)[1]

    def _bury(self, link: Connection) -> tuple[int, str]:
        """End the child and what it started; return its exit status and what it printed."""
        link.close()
        self._link = None
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if not pid:
            _, status = os.waitpid(self._pid, 0)
        log = self._printed.pass_on()
        self._printed.close()
        return os.waitstatus_to_exitcode(status), _OURS.split(log)[0]


def _answered(reply: bytes) -> dict[str, Any]:
    """Return an answer; what the child works on may have made it say something else."""
    try:
        found = json.loads(reply)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"error": "an answer that can not be read"}


def _failed(how: str, log: str) -> StageError | StoreError:
    """Return how work failed; native code that can not write says so in what it prints."""
    words = refusal.said(f"{how}\n{log}")
    return StoreError(f"{refusal.temporary()}: {words}") if words else Failed(how, log)


def _limit(link: Connection, seconds: float) -> None:
    """Have a read or a write that does not go on for so long fail with BlockingIOError."""
    time = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(link.fileno())) as end:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, time)


def bound(memory: int) -> None:
    """Keep this process to that many bytes more than it has, or to less where it may have less."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + memory
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _serve(
    begin: Callable[[], Handler],
    memory: int | None,
    link: Connection,
    printed: Printed,
    parent: int,
) -> NoReturn:
    """Answer requests until the other end is closed; never return, whatever happens."""
    try:
        os.setpgid(0, 0)
        die_with_parent(parent)
        printed.take()
        _first_to_go()
        if memory is not None:
            bound(memory)
        gc.freeze()  # what the parent made stays; searching through it again takes time
        handler: Handler | None = None
        while True:
            request = json.loads(link.recv_bytes())
            try:
                handler = handler or begin()
                answer = json.dumps({"ok": handler(request)})
            except BaseException as error:  # noqa: BLE001 - whatever it is, it ends here
                answer = json.dumps(_complaint(error))
            link.send_bytes(answer.encode())
    except (EOFError, OSError):
        os._exit(0)
    finally:
        os._exit(1)


def _first_to_go() -> None:
    """Have the system end this process before others where its memory runs out; write no core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _complaint(error: BaseException) -> dict[str, object]:
    traceback.print_exception(error)
    reason = "".join(traceback.format_exception_only(error)).strip()
    return {"error": reason[-_LONGEST:], "hungry": refusal.starved(error) is not None}
