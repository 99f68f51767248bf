"""Builds and times candidates on this machine: a forked child for each, one timed at a time.

TVM is imported once, in this process; a child starts with it in memory, compiles its candidate and
runs it where it was compiled, without archive, linker or upload. Fork only from a process without
other threads: a lock that one of them holds stays locked in the child.
"""

import math
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from time import monotonic
from typing import Final

import tvm

from autopipe.compiler.target.target import backend_of
from autopipe.config.tuning import Measure
from autopipe.measure.kept import Kept
from autopipe.measure.measurement import Candidate, Measurement
from autopipe.measure.trial import Trial
from autopipe.measure.turn import Turn
from autopipe.measure.worker import Job
from autopipe.processes.link import ready

_HELD: Final = 32
"""Built candidates that may wait in memory for their turn."""


class Local:
    """Measures on the processor this process runs on, or on the first GPU.

    Only children touch the GPU: a process that has touched it can not fork any more.
    """

    def __init__(
        self, target: tvm.target.Target, cores: int, limits: Measure, turn: Turn | None = None,
        touched: int = 0,
    ) -> None:  # fmt: skip
        """Take TVM's target, how many threads kernels run on, and the limits of a trial.

        Without a `turn` other runs are not waited for, which is for where times do not matter.
        `touched` is how many bytes a model touches at most between two calls of a kernel; without
        it all candidates are timed in a loop.
        Raises SetupError where compiler or driver of a GPU are missing or already in use here.
        """
        # Imported before the first fork, or every child would do it again.
        import numpy.ma  # noqa: F401 -- numpy's median does it, which each timing ends with

        from autopipe.measure import build, device, timing  # noqa: F401

        device.prepare_forks(target)
        self._caches = None
        runs_on_host = backend_of(target).runs_on_host
        if touched and runs_on_host:
            from autopipe.measure.caches import ModelCaches

            self._caches = ModelCaches.of(target, cores, touched)
        self._target = target
        self._cores = cores
        self._limits = limits
        self._turn = turn
        self._kept = Kept() if runs_on_host else Kept(0)  # a GPU has memory for a few at a time

    def measure(
        self,
        candidates: Sequence[Candidate],
        best: float = math.inf,
        *,
        rivals: bool = True,
        until: float = math.inf,
    ) -> Generator[Measurement]:
        """Build `cores` candidates at a time, then time one after the other, alone.

        `best` is the time to beat. Candidates of one task are rivals: the time of one is what the
        next has to beat. Of those that are not built by `until`, on the monotonic clock, nothing is
        said.
        """
        for start in range(0, len(candidates), _HELD):
            some = candidates[start : start + _HELD]
            trials: list[Trial] = []
            try:
                late = self._build(some, trials, until)
                with self._turn.taken() if self._turn else nullcontext():
                    for candidate, trial in zip(some, trials, strict=False):
                        if trial in late:
                            return
                        found = trial.round(best, self._limits.repeat)
                        self._kept.offer(candidate, trial, found)
                        best = min(best, found.median) if rivals else best
                        yield found
            finally:
                self._close(trials)

    def each(
        self, candidates: Sequence[Candidate], bests: Sequence[float]
    ) -> Generator[Measurement]:
        """Do the same with candidates that are no rivals, each with a time of its own to beat."""
        trials: list[Trial] = []
        try:
            self._build(candidates, trials)
            with self._turn.taken() if self._turn else nullcontext():
                for candidate, trial, best in zip(candidates, trials, bests, strict=True):
                    found = trial.round(best, self._limits.repeat)
                    self._kept.offer(candidate, trial, found)
                    yield found
        finally:
            self._close(trials)

    def rounds(self, candidates: Sequence[Candidate], count: int) -> list[Measurement]:
        """Time one after the other, and so on for so many rounds; those not kept are built first.

        All of them are kept for another time.
        """
        trials: list[Trial] = []
        try:
            self._build(candidates, trials)
            with self._turn.taken() if self._turn else nullcontext():
                timed = [[trial.round() for trial in trials] for _ in range(count)]
            found = [_joined(timings) for timings in zip(*timed, strict=True)]
            for candidate, trial, measurement in zip(candidates, trials, found, strict=True):
                self._kept.offer(candidate, trial, measurement)
        finally:
            self._close(trials)
        return found

    def close(self) -> None:
        """End the children that wait to be timed again."""
        self._kept.close()

    def _close(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if trial not in self._kept:
                trial.close()

    def _build(
        self, candidates: Sequence[Candidate], trials: list[Trial], until: float = math.inf
    ) -> list[Trial]:
        """Add a trial to `trials` for each candidate, and return once all of them are built.

        Or at `until`; then return those that are not, and have no trial for who comes after them.
        """
        building: list[Trial] = []
        for candidate in candidates:
            if (kept := self._kept.take(candidate)) is not None:
                trials.append(kept)
                continue
            while len(building) == self._cores and monotonic() < until:
                building = _progress(building, until)
            if monotonic() >= until:
                return building
            job = Job(candidate, self._target, self._cores, self._limits, self._caches)
            trial = Trial.start(job)
            trials.append(trial)
            building.append(trial)
        while building and monotonic() < until:
            building = _progress(building, until)
        return building


def _joined(rounds: Sequence[Measurement]) -> Measurement:
    """Return the times of all rounds, or the first failure."""
    failed = next((timed for timed in rounds if timed.error is not None), None)
    return failed or Measurement(tuple(timed.median for timed in rounds))


def _progress(building: Sequence[Trial], until: float) -> list[Trial]:
    """Wait until at least one build ends, well or not, and return those that go on."""
    ends = min(trial.deadline for trial in building)
    patience = max(0.0, min(ends, until) - monotonic())
    heard = ready([trial.link for trial in building], patience)
    going = []
    for trial in building:
        if trial.link in heard:
            trial.built()
        elif trial.deadline <= monotonic():
            trial.expire()
        else:
            going.append(trial)
    return going
