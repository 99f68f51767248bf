"""Trials from the parent's view: built by a child process, where they wait to be timed."""

import math
from collections.abc import Sequence
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
"""Largest message in bytes; a working child sends much less."""

_LONGEST: Final = 2000
"""Characters of an error that are kept."""


class TrialChild:
    """A child process that builds candidates one by one, and times them.

    Forking and ending one, and copying the memory that a build touches first, takes a third as long
    as building a candidate, so a child has several of them.
    """

    def __init__(self, process: Forked, link: Link, limits: Measure) -> None:
        self._process = process
        self._trials: set[Trial] = set()
        self.limits = limits
        self.link = link
        """Readable when the child has sent an answer, or is dead."""
        self.count = 0
        """Number of candidates that it was sent."""

    @classmethod
    def start(cls, job: worker.Job) -> Self:
        """Fork a child that can build the candidates of a job."""
        ours, theirs = make_link_pair()
        process = fork_process(lambda: worker.serve_job(job, theirs))
        theirs.close()
        return cls(process, ours, job.limits)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and its built candidates are lost."""
        return self.link.closed

    def begin(self, trials: Sequence["Trial"]) -> None:
        """Start the builds of trials, in one module of LLVM."""
        self._trials.update(trials)
        self.count += len(trials)
        for trial in trials:
            trial.enter(self, len(trials))
        with suppress(EOFError):  # the end of the child is noticed when its answer is read
            self.link.send([[trial.place for trial in trials]])

    def leave(self, trial: "Trial") -> None:
        """Unregister a trial, and end the child after the last one."""
        self._trials.discard(trial)
        if not self._trials:
            self.end()

    def end(self) -> int:
        """Kill it and its children, once, and return its exit status."""
        if not self.link.closed:
            self.link.close()
            end_process(self._process)
        return self._process.returncode or 0


class Trial:
    """One candidate in a child; `result` is set if it failed or was abandoned."""

    def __init__(self, place: int) -> None:
        """Set the index of the candidate in the job of its child."""
        self.place = place
        self._child: TrialChild | None = None
        self._is_alone = True
        """Whether it is built alone."""
        self.deadline = math.inf
        """Deadline of its build, by the monotonic clock."""
        self.result: Measurement | None = None

    @property
    def child(self) -> TrialChild:
        """The child of the trial, after `begin`."""
        assert self._child is not None  # noqa: S101 - `begin` comes before
        return self._child

    def enter(self, child: TrialChild, count: int) -> None:
        """Join `count` trials that a child builds together."""
        self._child, self._is_alone = child, count == 1
        self.deadline = monotonic() + child.limits.build_timeout * count

    def finish_build(self) -> None:
        """Receive the result of the build, at the deadline at the latest.

        The trial is lost if the child ends while it builds several: any of them may be the cause.
        """
        if self.child.has_ended:
            return
        measurement = self._receive_measurement("building", max(0.0, self.deadline - monotonic()))
        if self._is_alone or not self.child.has_ended:
            self.result = measurement

    def round(self, best: float = math.inf, repeat: int = 1) -> Measurement:
        """Time a built candidate again; return the error of a failed one."""
        if self.result is not None:
            return self.result
        with suppress(EOFError):  # noticed likewise
            self.child.link.send([self.place, best, repeat])
        seconds = self.child.limits.run_timeout
        measurement = self._receive_measurement("running", seconds) or Measurement(
            error="gave no time"
        )
        if measurement.error is not None:
            self.result = measurement
        return measurement

    @property
    def is_lost(self) -> bool:
        """Whether another candidate has ended its child, as far as is known."""
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
        """Abandon it; a child ends with the last of its trials."""
        self.result = self.result or Measurement(error="given up")
        if self._child is not None:
            self._child.leave(self)

    def _receive_measurement(self, doing: str, seconds: float) -> Measurement | None:
        """Receive the child's measurement, if any, or the reason of its failure.

        The child ends unless the candidate merely raised an exception.
        """
        try:
            line = self.child.link.receive(seconds, _LARGEST)
            fields, cause = failure.decode_answer(line)
            if cause is None:
                return (
                    None if fields is None else Measurement(tuple(fields.pop("seconds")), **fields)
                )
        except EOFError:
            cause = failure.describe_ended(self.child.end())
        except TimeoutError:
            cause = failure.describe_hung(seconds)
        except (TooLong, TypeError, LookupError, AttributeError):
            cause = failure.describe_garbled()
        if cause.how not in {How.RAISED, How.HUNGRY}:
            self.child.end()
        return self._describe_failure(doing, cause)

    def _describe_failure(self, doing: str, cause: Failure) -> Measurement:
        limits = self.child.limits
        seconds = {"building": limits.build_timeout, "running": limits.run_timeout}[doing]
        match cause.how:
            case How.CRASHED:
                return Measurement(error=f"{doing} crashed: {cause.ending}")
            case How.ENDED:
                return Measurement(error=f"{doing} crashed: ended with {cause.ending}")
            case How.HUNG:
                return Measurement(error=f"{doing} took longer than {seconds:g} s")
            case How.GARBLED:
                return Measurement(error=f"{doing} garbled its answer")
        return Measurement(error=f"{cause.kind}: {cause.text}"[-_LONGEST:])
