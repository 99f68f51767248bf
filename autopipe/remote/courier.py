"""Transfers files to and from a remote in a child process, each within a deadline."""

import math
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.errors import StoreError
from autopipe.processes import failure
from autopipe.processes.ending import end_process
from autopipe.processes.failure import Failure
from autopipe.processes.link import Link, TooLong
from autopipe.processes.start import program

SERVER: str = "autopipe.remote.server"
"""The module of the child process."""

_START: Final = 60.0
"""Seconds to import the client of the storage, which depends on this machine only."""
_GRACE: Final = 5.0
"""Seconds to wait for the end of a killed process."""
_RATE: Final = 2**20
"""Minimum rate of a transfer in bytes a second."""
_WEEK: Final = 604_800.0
"""Maximum time limit in seconds, for a file of any size."""
_LONGEST: Final = 2**24
"""Maximum bytes of an answer: a listing of 170000 names."""


class RemoteError(StoreError):
    """The remote cannot be used: it is down, slow, full, or no remote of autopipe."""


class AbsentError(RemoteError):
    """The remote does not have this file."""


class DeniedError(RemoteError):
    """The remote denies permission."""


class DamagedError(RemoteError):
    """A file of the remote is damaged."""


_ERRORS: Final = {
    "absent": AbsentError, "denied": DeniedError, "damaged": DamagedError, "failed": RemoteError,
}  # fmt: skip


class Courier:
    """A child process that accesses one remote, started at the first request.

    Every method raises RemoteError.
    """

    def __init__(self, url: str, tmp: Path, *, timeout: float, total: float = math.inf) -> None:
        """Configure the limits in seconds: `timeout` of one answer, `total` of all answers."""
        self.url = url
        self._tmp = tmp
        self._timeout = timeout
        self._left = total
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Link

    def get(self, name: str, file: Path, limit: int, *, size: int = 0) -> None:
        """Download a file of up to `limit` bytes; the time limit is that of `size` bytes."""
        self._ask("get", size, name=name, file=os.fspath(file), limit=limit)

    def put(self, file: Path, name: str) -> None:
        """Upload a file."""
        self._ask("put", file.stat().st_size, name=name, file=os.fspath(file))

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if the remote does not state it."""
        answer = self._ask("size", name=name)
        return answer if type(answer) is int and answer >= 0 else None

    def list(self, folder: str) -> dict[str, float | None]:
        """Return the modification times in a folder by name, in seconds since 1970."""
        answer = self._ask("list", name=folder)
        if not isinstance(answer, dict):
            raise DamagedError("its listing is none")
        return {name: _parse_time(value) for name, value in answer.items()}

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        with suppress(AbsentError):
            self._ask("remove", name=name)

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._link.close()
            end_process(self._process, patience=_GRACE)  # and its children, which fetch credentials
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, do: str, size: int = 0, **request: object) -> Any:  # noqa: ANN401 -- JSON
        if self._process is None:
            self._start_process()
        if self._left <= 0:
            raise RemoteError("it has had all the time that a run gives it, cache.time")
        start = time.monotonic()
        try:
            patience = min(self._timeout + size / _RATE, self._left, _WEEK)
            return self._request({"do": do, **request}, patience)
        finally:
            self._left -= time.monotonic() - start

    def _start_process(self) -> None:
        try:
            self._process, self._link = program(
                SERVER,
                subprocess.DEVNULL,
                variables={"TMPDIR": os.fspath(self._tmp)},
                credentials=True,
            )
        except OSError as error:
            raise RemoteError(f"cannot start a process: {error.strerror}") from error
        try:
            self._request({"url": self.url}, _START)
        except RemoteError:
            self.close()
            raise

    def _request(self, request: dict[str, object], patience: float) -> Any:  # noqa: ANN401 -- JSON
        try:
            answer, report = self._exchange_messages(request, patience)
        except BaseException:
            self.close()  # a late answer would be mistaken for that of the next request
            raise
        if report is not None:
            raise report._replace(message=format_value(report.message, 500)).error(
                _ERRORS, RemoteError
            )
        return answer

    def _exchange_messages(
        self, request: dict[str, object], patience: float
    ) -> tuple[Any, Failure | None]:
        end = time.monotonic() + patience
        try:
            self._link.send(request, patience)
            line = self._link.receive(end - time.monotonic(), _LONGEST)
            return failure.split_answer(foreign.parse_object(line))
        except EOFError:
            raise RemoteError(f"the process that accesses it {self._describe_end()}") from None
        except TimeoutError:
            raise RemoteError(f"it gave no answer within {patience:.3g} s") from None
        except TooLong:
            raise DamagedError("it has more to list than a remote of ours") from None
        except foreign.MalformedError as error:
            raise RemoteError(f"the process that accesses it sent no answer: {error}") from None

    def _describe_end(self) -> str:
        """Describe how the process ended."""
        assert self._process is not None  # noqa: S101 -- started before
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return "closed its link"
        return f"ended with {failure.describe_ended(status).ending}"


def _parse_time(value: object) -> float | None:
    """Return a modification time, or None if it is no number."""
    return float(value) if type(value) in {int, float} else None  # type: ignore[arg-type]
