"""Build and time candidates on this machine, in forked children, one timed at a time.

TVM is imported once, in this process; a child starts with it in memory, compiles some candidates
and runs them in place, without archive, linker or upload. A candidate that ends its child costs
its own trial only: the others are rebuilt. Fork only from a process without other threads: a lock
that one of them holds stays locked in the child.
"""

import math
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from time import monotonic
from typing import Final

import tvm

from autopipe.compiler.target.target import backend_of
from autopipe.config.tuning import Measure
from autopipe.measure.kept import Kept
from autopipe.measure.measurement import Candidate, Measurement
from autopipe.measure.trial import Trial, TrialChild
from autopipe.measure.turn import Turn
from autopipe.measure.worker import Job
from autopipe.processes.link import wait_for_readable

_HELD: Final = 32
"""Built candidates that may wait in memory to be timed."""

_SHARED: Final = 16
"""Largest number of candidates per child."""

_TOGETHER: Final = 4
"""Largest number of candidates that a child compiles in one module of LLVM."""


class Local:
    """Measures on the processor this process runs on, or on the first GPU.

    Only children touch the GPU: a process that has touched it cannot fork any more.
    """

    def __init__(
        self, target: tvm.target.Target, cores: int, limits: Measure, turn: Turn | None = None,
        touched_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Set TVM's target, the number of kernel threads, and the limits of a trial.

        Without a `turn` timing does not exclude other runs, for uses where times do not matter.
        `touched_bytes` is the largest number of bytes that a model touches between two calls of a
        kernel; if 0, all candidates are timed in a loop. Raises SetupError where the compiler or
        the driver of a GPU is missing or already in use here.
        """
        # Imported before the first fork, or every child would repeat it.
        import numpy.ma  # noqa: F401 -- each timing ends with numpy's median, which imports it

        from autopipe.measure import build, device, timing  # noqa: F401

        device.prepare_forks(target)
        self._caches = None
        runs_on_host = backend_of(target).runs_on_host
        if touched_bytes and runs_on_host:
            from autopipe.measure.caches import ModelCaches

            self._caches = ModelCaches.of(target, cores, touched_bytes)
        self._target = target
        self._cores = cores
        self._limits = limits
        self._turn = turn
        self._kept = Kept() if runs_on_host else Kept(0)  # a GPU has memory for a few at a time
        self._shared = _SHARED if runs_on_host else 1  # a failure on a GPU leaves it unusable

    def measure(
        self,
        candidates: Sequence[Candidate],
        best: float = math.inf,
        *,
        same_task: bool = True,
        until: float = math.inf,
    ) -> Generator[Measurement]:
        """Build candidates on all cores, then time them one by one.

        `best` is the time to beat, in seconds. With `same_task` all candidates are of one task: the
        time of each is the one to beat for the next. Candidates not built by `until`, on the
        monotonic clock, are omitted.
        """
        for start in range(0, len(candidates), _HELD):
            some = candidates[start : start + _HELD]
            trials: list[Trial] = []
            try:
                late = self._build_candidates(some, trials, until)
                with self._turn.taken() if self._turn else nullcontext():
                    for place, candidate in enumerate(some):
                        if trials[place] in late:
                            return
                        measurement = self._time_candidate(
                            candidate, trials, place, best, self._limits.repeat
                        )
                        self._kept.offer(candidate, trials[place], measurement)
                        best = min(best, measurement.median) if same_task else best
                        yield measurement
            finally:
                self._close_trials(trials)

    def each(
        self, candidates: Sequence[Candidate], bests: Sequence[float]
    ) -> Generator[Measurement]:
        """Measure candidates of different tasks, each with a time of its own to beat."""
        trials: list[Trial] = []
        try:
            self._build_candidates(candidates, trials)
            with self._turn.taken() if self._turn else nullcontext():
                for place, (candidate, best) in enumerate(zip(candidates, bests, strict=True)):
                    measurement = self._time_candidate(
                        candidate, trials, place, best, self._limits.repeat
                    )
                    self._kept.offer(candidate, trials[place], measurement)
                    yield measurement
        finally:
            self._close_trials(trials)

    def rounds(self, candidates: Sequence[Candidate], count: int) -> list[Measurement]:
        """Time candidates in `count` interleaved rounds; those not kept are built first.

        All of them are kept for later measurements.
        """
        trials: list[Trial] = []
        try:
            self._build_candidates(candidates, trials)
            with self._turn.taken() if self._turn else nullcontext():
                timings_by_round = [
                    [
                        self._time_candidate(each, trials, place)
                        for place, each in enumerate(candidates)
                    ]
                    for _ in range(count)
                ]
            measurements = [
                _join_rounds(timings) for timings in zip(*timings_by_round, strict=True)
            ]
            for candidate, trial, measurement in zip(candidates, trials, measurements, strict=True):
                self._kept.offer(candidate, trial, measurement)
        finally:
            self._close_trials(trials)
        return measurements

    def close(self) -> None:
        """End the children of kept trials."""
        self._kept.close()

    def _close_trials(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if trial not in self._kept:
                trial.close()

    def _time_candidate(
        self, candidate: Candidate, trials: list[Trial], place: int, best: float = math.inf,
        repeat: int = 1,
    ) -> Measurement:  # fmt: skip
        """Time a candidate; rebuild it first if another candidate has ended its child."""
        if trials[place].is_lost:
            again: list[Trial] = []
            self._build_candidates([candidate], again)
            trials[place] = again[0]
        return trials[place].round(best, repeat)

    def _build_candidates(
        self, candidates: Sequence[Candidate], trials: list[Trial], until: float = math.inf
    ) -> list[Trial]:
        """Append a trial to `trials` for each candidate, and build all of them.

        Stops at `until`, and returns the trials that are not built by then.
        """
        kept_trials = [self._kept.take(candidate) for candidate in candidates]
        trials += [trial or Trial(place) for place, trial in enumerate(kept_trials)]
        waiting = deque(
            trial for trial, old in zip(trials, kept_trials, strict=True) if old is None
        )
        job = Job(candidates, self._target, self._cores, self._limits, self._caches)
        building: list[Trial] = []
        idle: list[TrialChild] = []
        while (waiting or building) and monotonic() < until:
            while waiting and len({trial.child for trial in building}) < self._cores:
                count = min(_TOGETHER, self._shared, math.ceil(len(waiting) / self._cores))
                some = [waiting.popleft() for _ in range(count)]
                (idle.pop() if idle else TrialChild.start(job)).begin(some)
                building += some
            ended_trials = _wait_for_builds(building, until)
            building = [trial for trial in building if trial not in ended_trials]
            children = dict.fromkeys(trial.child for trial in ended_trials)
            idle += [one for one in children if not one.has_ended and one.count < self._shared]
        return [*building, *waiting]


def _join_rounds(rounds: Sequence[Measurement]) -> Measurement:
    """Join the times of all rounds, or return the first failure."""
    failure = next((timed for timed in rounds if timed.error is not None), None)
    return failure or Measurement(tuple(timed.median for timed in rounds))


def _wait_for_builds(building: Sequence[Trial], until: float) -> list[Trial]:
    """Wait until at least one build ends, even by failure, and return all that have ended."""
    ends = min(trial.deadline for trial in building)
    patience = max(0.0, min(ends, until) - monotonic())
    heard = wait_for_readable([*{trial.child.link for trial in building}], patience)
    ended_trials = [
        trial for trial in building if trial.child.link in heard or trial.deadline <= monotonic()
    ]
    for trial in ended_trials:
        trial.finish_build()
    return ended_trials
