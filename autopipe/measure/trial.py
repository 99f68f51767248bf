"""One trial as its parent sees it: a child process that is built, waits, and is timed."""

import math
from contextlib import suppress
from time import monotonic
from typing import Final, Self

from autopipe.config.tuning import Measure
from autopipe.measure import worker
from autopipe.measure.measurement import Measurement
from autopipe.processes import failure
from autopipe.processes.ending import end
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong, pair, ready
from autopipe.processes.start import Forked, fork

_LARGEST: Final = 1 << 20
"""Bytes of a message a sane child never reaches."""

_LONGEST: Final = 2000
"""Characters of an error that are worth keeping."""


class Trial:
    """A child that belongs to one candidate; `result` is set where it has failed or was ended."""

    def __init__(self, process: Forked, link: Link, limits: Measure) -> None:
        self._process = process
        self._seconds = {"building": limits.build_timeout, "running": limits.run_timeout}
        self.link = link
        """Readable when the child has something to say, or is dead."""
        self.deadline = monotonic() + limits.build_timeout
        """When it has to be built, by the monotonic clock."""
        self.result: Measurement | None = None

    @classmethod
    def start(cls, job: worker.Job) -> Self:
        """Fork a child that builds the candidate of the job."""
        ours, theirs = pair()
        process = fork(lambda: worker.serve(job, theirs))
        theirs.close()
        return cls(process, ours, job.limits)

    def built(self) -> None:
        """Take what the child says about its build; end it if that is a failure."""
        self.result = self._answer("building", self.deadline - monotonic())
        if self.result is not None:
            self._end()

    def expire(self) -> None:
        """End a child that is still building at its deadline."""
        self._end()
        self.result = self._failed("building", failure.hung(self._seconds["building"]))

    def round(self, best: float = math.inf, repeat: int = 1) -> Measurement:
        """Have a built candidate timed once more; one that failed has ended, and stays so."""
        if self.result is not None:
            return self.result
        with suppress(EOFError):  # its end is noticed below
            self.link.send([best, repeat])
        seconds = self._seconds["running"]
        found = self._answer("running", seconds) or Measurement(error="gave no time")
        if found.error is not None:
            self.result = found
            self._end()
        return found

    @property
    def waits(self) -> bool:
        """Whether it is built, and waits to be timed."""
        return self.result is None and not ready([self.link], 0.0)

    def close(self) -> None:
        """End the child, whatever it is doing."""
        self._end()
        self.result = self.result or Measurement(error="given up")

    def _answer(self, doing: str, seconds: float) -> Measurement | None:
        """Return what the child has measured, if anything, or why it failed."""
        try:
            found, failed = failure.opened(self.link.receive(seconds, _LARGEST))
            if failed is None:
                return None if found is None else Measurement(tuple(found.pop("seconds")), **found)
        except EOFError:
            failed = failure.ended(self._end())
        except TimeoutError:
            failed = failure.hung(seconds)
        except (TooLong, TypeError, LookupError, AttributeError):
            failed = failure.garbled()
        return self._failed(doing, failed)

    def _failed(self, doing: str, failed: Failure) -> Measurement:
        match failed.how:
            case How.CRASHED:
                return Measurement(error=f"{doing} crashed: {failed.ending}")
            case How.ENDED:
                return Measurement(error=f"{doing} crashed: ended with {failed.ending}")
            case How.HUNG:
                return Measurement(error=f"{doing} took longer than {self._seconds[doing]:g} s")
            case How.GARBLED:
                return Measurement(error=f"{doing} garbled its answer")
        return Measurement(error=f"{failed.kind}: {failed.text}"[-_LONGEST:])

    def _end(self) -> int:
        """Kill the child and what it started, once, and return its exit status."""
        if not self.link.closed:
            self.link.close()
            end(self._process)
        return self._process.returncode or 0
