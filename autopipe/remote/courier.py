"""Carries files to and from a remote, each within a deadline, whatever the remote does."""

import math
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
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
"""The module that answers."""

_START: Final = 60.0
"""Seconds that importing what speaks to the storage may take: this machine's doing."""
_GRACE: Final = 5.0
"""Seconds in which a process that has ended, or was killed, is gone."""
_RATE: Final = 2**20
"""Bytes a second that a file has to come at."""
_WEEK: Final = 604_800.0
"""Seconds that nothing is waited for longer, whatever size it says it has."""
_LONGEST: Final = 2**24
"""Bytes of an answer: a listing of 170000 names."""


class RemoteError(StoreError):
    """The remote cannot be used: it is down, slow, full, or not what it should be."""


class AbsentError(RemoteError):
    """The remote does not have this file."""


class DeniedError(RemoteError):
    """The remote does not let us do this."""


class DamagedError(RemoteError):
    """What the remote has is not what it says it is."""


_ERRORS: Final = {
    "absent": AbsentError, "denied": DeniedError, "damaged": DamagedError, "failed": RemoteError,
}  # fmt: skip


class Courier:
    """A process that speaks to one remote. It is started at the first request, and never outlived.

    Every method raises RemoteError.
    """

    def __init__(self, url: str, tmp: Path, *, timeout: float, total: float = math.inf) -> None:
        """Start nothing yet. `timeout` seconds are for one answer, `total` for all."""
        self.url = url
        self._tmp = tmp
        self._timeout = timeout
        self._left = total
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Link

    def get(self, name: str, file: Path, limit: int, *, size: int = 0) -> None:
        """Copy a file to here, `limit` bytes at most; it has the time of one of `size` bytes."""
        self._ask("get", size, name=name, file=os.fspath(file), limit=limit)

    def put(self, file: Path, name: str) -> None:
        """Copy a file from here."""
        self._ask("put", file.stat().st_size, name=name, file=os.fspath(file))

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has; None if the remote cannot say."""
        found = self._ask("size", name=name)
        return found if type(found) is int and found >= 0 else None

    def list(self, folder: str) -> dict[str, float | None]:
        """Return the names in a folder, and when each was written, in seconds since 1970."""
        found = self._ask("list", name=folder)
        if not isinstance(found, dict):
            raise DamagedError("its listing is none")
        return {name: _parse_time(value) for name, value in found.items()}

    def remove(self, name: str) -> None:
        """Delete a file; one that is not there is deleted."""
        with suppress(AbsentError):
            self._ask("remove", name=name)

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._link.close()
            end_process(
                self._process, patience=_GRACE
            )  # with what it has started to get credentials
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
            return self._told({"do": do, **request}, patience)
        finally:
            self._left -= time.monotonic() - start

    def _start_process(self) -> None:
        try:
            self._process, self._link = program(
                SERVER, subprocess.DEVNULL, more={"TMPDIR": os.fspath(self._tmp)}, credentials=True
            )
        except OSError as error:
            raise RemoteError(f"cannot start a process: {error.strerror}") from error
        try:
            self._told({"url": self.url}, _START)
        except RemoteError:
            self.close()
            raise

    def _told(self, request: dict[str, object], patience: float) -> Any:  # noqa: ANN401 -- JSON
        try:
            found, failed = self._exchange_messages(request, patience)
        except BaseException:
            self.close()  # an answer that comes later would be taken for another's
            raise
        if failed is not None:
            raise replace(failed, message=format_value(failed.message, 500)).error(
                _ERRORS, RemoteError
            )
        return found

    def _exchange_messages(
        self, request: dict[str, object], patience: float
    ) -> tuple[Any, Failure | None]:
        end = time.monotonic() + patience
        try:
            self._link.send(request, patience)
            line = self._link.receive(end - time.monotonic(), _LONGEST)
            return failure.split_answer(foreign.parse_object(line))
        except EOFError:
            raise RemoteError(f"the process that asks it {self._describe_end()}") from None
        except TimeoutError:
            raise RemoteError(f"it gave no answer within {patience:.3g} s") from None
        except TooLong:
            raise DamagedError("it has more to list than a remote of ours") from None
        except foreign.MalformedError as error:
            raise RemoteError(f"the process that asks it said something else: {error}") from None

    def _describe_end(self) -> str:
        """Say how the process has ended."""
        assert self._process is not None  # noqa: S101 -- started before
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return "says no more"
        return f"ended with {failure.describe_ended(status).ending}"


def _parse_time(value: object) -> float | None:
    """Return when a file was written, if that is a time."""
    return float(value) if type(value) in {int, float} else None  # type: ignore[arg-type]
