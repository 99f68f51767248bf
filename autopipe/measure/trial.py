"""Trials as their parent sees them: built by a child process, where they wait to be timed."""

import math
from contextlib import suppress
from time import monotonic
from typing import Final, Self

from autopipe.config.tuning import Measure
from autopipe.measure import worker
from autopipe.measure.measurement import Measurement
from autopipe.processes import failure
from autopipe.processes.ending import end_process
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong, make_link_pair, wait_for_readable
from autopipe.processes.start import Forked, fork_process

_LARGEST: Final = 1 << 20
"""Bytes of a message a sane child never reaches."""

_LONGEST: Final = 2000
"""Characters of an error that are worth keeping."""


class TrialChild:
    """A child process that builds candidates one after the other, and times those it has built.

    To fork and to end one, and to copy the memory that a build touches first, takes a third as long
    as to build a candidate, so it has several of them.
    """

    def __init__(self, process: Forked, link: Link, limits: Measure) -> None:
        self._process = process
        self._trials: set[Trial] = set()
        self.limits = limits
        self.link = link
        """Readable when the child has something to say, or is dead."""
        self.count = 0
        """How many candidates it was asked to build."""

    @classmethod
    def start(cls, job: worker.Job) -> Self:
        """Fork a child that can build the candidates of a job."""
        ours, theirs = make_link_pair()
        process = fork_process(lambda: worker.serve_job(job, theirs))
        theirs.close()
        return cls(process, ours, job.limits)

    @property
    def has_ended(self) -> bool:
        """Whether it was ended: what it has built is lost."""
        return self.link.closed

    def enter(self, trial: "Trial") -> None:
        """Count a trial that this child builds."""
        self._trials.add(trial)
        self.count += 1

    def leave(self, trial: "Trial") -> None:
        """End the child once no trial needs it any more."""
        self._trials.discard(trial)
        if not self._trials:
            self.end()

    def end(self) -> int:
        """Kill it and what it started, once, and return its exit status."""
        if not self.link.closed:
            self.link.close()
            end_process(self._process)
        return self._process.returncode or 0


class Trial:
    """One candidate in a child; `result` is set where it has failed or was given up."""

    def __init__(self, place: int) -> None:
        """Take the place of the candidate in the job of its child."""
        self._place = place
        self._child: TrialChild | None = None
        self.deadline = math.inf
        """When it has to be built, by the monotonic clock."""
        self.result: Measurement | None = None

    @property
    def child(self) -> TrialChild:
        """The child that has it, once its build was begun."""
        assert self._child is not None  # noqa: S101 - `begin` comes before
        return self._child

    def begin(self, child: TrialChild) -> None:
        """Have a child begin to build it."""
        self._child = child
        child.enter(self)
        self.deadline = monotonic() + child.limits.build_timeout
        with suppress(EOFError):  # its end is noticed where it is to answer
            child.link.send([self._place])

    def finish_build(self) -> None:
        """Take what the child says about the build, at the deadline at the latest."""
        self.result = self._receive_measurement("building", max(0.0, self.deadline - monotonic()))

    def round(self, best: float = math.inf, repeat: int = 1) -> Measurement:
        """Have a built candidate timed once more; one that failed stays so."""
        if self.result is not None:
            return self.result
        with suppress(EOFError):  # likewise
            self.child.link.send([self._place, best, repeat])
        seconds = self.child.limits.run_timeout
        found = self._receive_measurement("running", seconds) or Measurement(error="gave no time")
        if found.error is not None:
            self.result = found
        return found

    @property
    def is_lost(self) -> bool:
        """Whether it was built by a child that another candidate has ended."""
        return self.result is None and self.child.has_ended

    @property
    def waits(self) -> bool:
        """Whether it is built, and waits to be timed."""
        return (
            self.result is None
            and not self.is_lost
            and not wait_for_readable([self.child.link], 0.0)
        )

    def close(self) -> None:
        """Give it up; a child ends with the last of its trials."""
        self.result = self.result or Measurement(error="given up")
        if self._child is not None:
            self._child.leave(self)

    def _receive_measurement(self, doing: str, seconds: float) -> Measurement | None:
        """Return what the child has measured, if anything, or why it failed.

        Unless the candidate has only raised something, its child ends.
        """
        try:
            line = self.child.link.receive(seconds, _LARGEST)
            found, failed = failure.decode_answer(line)
            if failed is None:
                return None if found is None else Measurement(tuple(found.pop("seconds")), **found)
        except EOFError:
            failed = failure.describe_ended(self.child.end())
        except TimeoutError:
            failed = failure.describe_hung(seconds)
        except (TooLong, TypeError, LookupError, AttributeError):
            failed = failure.describe_garbled()
        if failed.how not in {How.RAISED, How.HUNGRY}:
            self.child.end()
        return self._describe_failure(doing, failed)

    def _describe_failure(self, doing: str, failed: Failure) -> Measurement:
        limits = self.child.limits
        seconds = {"building": limits.build_timeout, "running": limits.run_timeout}[doing]
        match failed.how:
            case How.CRASHED:
                return Measurement(error=f"{doing} crashed: {failed.ending}")
            case How.ENDED:
                return Measurement(error=f"{doing} crashed: ended with {failed.ending}")
            case How.HUNG:
                return Measurement(error=f"{doing} took longer than {seconds:g} s")
            case How.GARBLED:
                return Measurement(error=f"{doing} garbled its answer")
        return Measurement(error=f"{failed.kind}: {failed.text}"[-_LONGEST:])
