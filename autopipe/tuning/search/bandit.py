"""Which contender of a task proposes its next batch: a bandit over engines and implementations.

What a contender brings is the part of the task's time that a batch took off, by the second the
batch took. One that was not asked yet is judged by how its engine does on the other tasks. Hope,
which shrinks with every batch, brings back those that were unlucky.

A library leaves little to choose: its calls are timed before any search, and a few more ways to
call it are all that is left. So libraries are judged by libraries, and loops are searched before.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autopipe import libraries
from autopipe.config.schedules import Rule
from autopipe.schedules.policy import Contender

_BEHIND: Final = 1.5
"""An implementation whose best is this many times slower than the task's is not searched."""

_MEMORY: Final = 0.5
"""Weight of the last batch in what a contender brings."""

_HOPE: Final = 0.1
"""Part of the task's time that the batch after the first is hoped to take off."""

_HOPELESS: Final = 2
"""Batches without a single time after which a contender is left out."""


@dataclass(slots=True)
class Form:
    """What batches bring, lately: those of a contender, or of its like on all tasks."""

    batches: int = 0
    pace: float = 1.0
    """Seconds a batch takes, with search and builds."""
    brought: float = 0.0
    """Part of a task's time that a batch takes off."""

    def count(self, gain: float, seconds: float) -> None:
        """Take a batch."""
        self.batches += 1
        self.pace += (max(seconds, 1e-3) - self.pace) / self.batches
        self.brought += _MEMORY * (gain - self.brought)


@dataclass(slots=True)
class ContestEntry:
    """How one contender does."""

    trials: int = 0
    """Trials of this session."""
    best: float = math.inf
    """Least seconds of one call among its own schedules."""
    form: Form = field(default_factory=Form)
    out: str | None = None
    """Why it is not asked any more; null while it is."""


@dataclass(slots=True)
class Contest:
    """The contenders for one task."""

    rule: Rule
    position: int | None
    """Which rule of the policy it is; null without one."""
    entries: dict[Contender, ContestEntry]
    """How each does, those of the rule's first engine first."""
    likes: dict[str, Form] = field(default_factory=dict)
    """How each engine does with loops, and each library; all tasks share it."""
    reached: dict[str, float] = field(default_factory=dict)
    """Least seconds of one call of each implementation, whoever scheduled it."""

    def note(self, implementation: str, seconds: float) -> None:
        """Take the time of one schedule."""
        self.reached[implementation] = min(seconds, self.reached.get(implementation, math.inf))

    def hear(self, by: Contender, seconds: float) -> None:
        """Take the time of a schedule of a contender that another run has measured."""
        self.note(by.implementation, seconds)
        self.entries[by].best = min(self.entries[by].best, seconds)

    def count(self, by: Contender, times: Sequence[float], before: float, seconds: float) -> None:
        """Take the times of a batch; `before` is the task's best until then."""
        entry = self.entries[by]
        entry.trials += len(times)
        entry.best = min(entry.best, *times, math.inf)
        gain = max(0.0, 1 - entry.best / before) if before < math.inf else 0.0
        for form in (entry.form, self.likes.setdefault(_like(by), Form())):
            form.count(gain, seconds)
        if entry.best == math.inf and entry.form.batches >= _HOPELESS:
            entry.out = "no candidate could be measured"

    def next(self) -> Contender | None:
        """Return whose turn it is, or None if nobody is left who is worth a trial."""
        best = min(self.reached.values(), default=math.inf)
        ready = {
            by: entry
            for by, entry in self._admitted().items()
            if entry.out is None and self._near(by, best)
        }
        return max(self._due(ready), key=lambda by: self._score(by, best), default=None)

    def _score(self, by: Contender, best: float) -> tuple[float, bool, float, int]:
        """Return what another batch is expected to bring a second; equals go by promise."""
        entry = self.entries[by]
        reached = self.reached.get(by.implementation, math.inf)
        promise = (not _is_library(by), -reached, -self.rule.engines.index(by.engine))
        form = entry.form if entry.form.batches else self.likes.get(_like(by))
        if form is None or not form.batches:  # nobody knows it yet
            return math.inf, *promise
        own = entry.best if entry.form.batches else min(reached, _BEHIND * best)
        near = min(1.0, best / own) if own < math.inf else 0.0
        hope = _HOPE * near**2 / max(1, entry.form.batches)
        return (form.brought + hope) / form.pace, *promise

    def ended(self) -> str:
        """Say why nobody is left."""
        reasons = [entry.out for entry in self.entries.values() if entry.out is not None]
        return reasons[-1] if reasons else "the policy gives it no engine"

    def _admitted(self) -> dict[Contender, ContestEntry]:
        """Return those that the rule lets play: of one engine alone, if it selects the first."""
        if self.rule.select == "best":
            return self.entries
        for engine in self.rule.engines:
            own = _of(self.entries, {engine})
            if any(entry.out is None or entry.best < math.inf for entry in own.values()):
                return own
        return {}

    def _near(self, by: Contender, best: float) -> bool:
        reached = self.reached.get(by.implementation, math.inf)
        unknown = reached == math.inf and not self.entries[by].form.batches
        return reached <= _BEHIND * best or unknown

    def _due(self, ready: dict[Contender, ContestEntry]) -> dict[Contender, ContestEntry]:
        """Return those of the engine that is furthest below its share, or of all that have none."""
        shares = self.rule.shares
        total = sum(entry.trials for entry in self.entries.values())
        engines = {by.engine for by in ready}
        if not shares or len(engines) == 1:
            return ready
        used = dict.fromkeys(engines, 0)
        for by, entry in _of(self.entries, engines).items():
            used[by.engine] += entry.trials
        lacking = {e: used[e] / shares[e] for e in engines if e in shares}
        first = min(lacking, key=lambda engine: (lacking[engine], engine), default=None)
        free = engines - shares.keys()
        if first is not None and (not free or lacking[first] <= total):
            return _of(ready, {first})
        return _of(ready, free)


def _is_library(by: Contender) -> bool:
    return libraries.named(by.implementation) is not None


def _like(by: Contender) -> str:
    """Return what a contender is judged by where it was not asked yet."""
    return by.implementation if _is_library(by) else by.engine


def _of(
    entries: Mapping[Contender, ContestEntry], engines: Collection[str]
) -> dict[Contender, ContestEntry]:
    return {by: entry for by, entry in entries.items() if by.engine in engines}
