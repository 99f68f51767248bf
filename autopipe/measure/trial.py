"""One trial as its parent sees it: a child process that is built, waits, and is timed."""

import json
import math
import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from time import monotonic
from typing import Final, Self

from autopipe.config.tuning import Measure
from autopipe.measure import worker
from autopipe.measure.measurement import Measurement

_LARGEST: Final = 1 << 20
"""Bytes of a message a sane child never reaches."""


class Trial:
    """A child that belongs to one candidate; `result` is set once it has ended."""

    def __init__(self, pid: int, link: Connection, limits: Measure) -> None:
        self._pid = pid
        self._limits = limits
        self.link = link
        """Readable when the child has something to say, or is dead."""
        self.deadline = monotonic() + limits.build_timeout
        """When it has to be built, by the monotonic clock."""
        self.result: Measurement | None = None

    @classmethod
    def start(cls, job: worker.Job) -> Self:
        """Fork a child that builds the candidate of the job."""
        ours, theirs = Pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            worker.serve(job, theirs, parent)
        theirs.close()
        with suppress(OSError):  # the child was quicker, or is gone
            os.setpgid(pid, pid)
        return cls(pid, ours, job.limits)

    def built(self) -> None:
        """Take what the child says about its build; end it if that is a failure."""
        self.result = self._answer("building")
        if self.result is not None:
            self._end()

    def expire(self) -> None:
        """End a child that is still building at its deadline."""
        self._fail(f"building took longer than {self._limits.build_timeout:g} s")

    def time(self, best: float) -> Measurement:
        """Have a built candidate timed, unless it failed before, and end it."""
        found = self.round(best)
        if self.result is None:
            self.result = found
            self._end()
        return self.result

    def round(self, best: float = math.inf) -> Measurement:
        """Have a built candidate timed once more; one that failed has ended, and stays so."""
        if self.result is not None:
            return self.result
        with suppress(OSError):
            self.link.send_bytes(json.dumps(best).encode())
        if not self.link.poll(self._limits.run_timeout):
            return self._fail(f"running took longer than {self._limits.run_timeout:g} s")
        found = self._answer("running") or Measurement(error="gave no time")
        if found.error is not None:
            self.result = found
            self._end()
        return found

    def close(self) -> None:
        """End the child, whatever it is doing."""
        if self.result is None:
            self._fail("given up")

    def _answer(self, doing: str) -> Measurement | None:
        try:
            answer = json.loads(self.link.recv_bytes(_LARGEST))
            return None if answer is None else Measurement(tuple(answer.pop("seconds")), **answer)
        except (EOFError, OSError):
            return Measurement(error=f"{doing} crashed: {self._end()}")
        except (ValueError, TypeError, LookupError, AttributeError):
            return Measurement(error=f"{doing} garbled its answer")

    def _fail(self, error: str) -> Measurement:
        self._end()
        self.result = Measurement(error=error)
        return self.result

    def _end(self) -> str:
        """Kill the child and what it started, and return how it ended."""
        if self.link.closed:
            return "ended"
        self.link.close()
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if pid == 0:
            _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return signal.Signals(-code).name if code < 0 else f"ended with status {code}"
