"""What one worker of a farm says is a claim: before it leads or wins, others are asked.

While tasks are searched, a time that is far better than what others have found of its task is
asked for at two workers at once: it would mislead the search, and have honest trials cut short. In
the end all that won a run-off, which two workers have timed, is held against what was said of it in
the trials. Who has said what is not found is asked again, beside two others: machines get slower
and faster. Who then alone says something else is not believed in anything: its records count no
more, and its trials are made again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from autopipe.artifacts.tuning import FarmWord
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.records.session import RUN_OFF
from autopipe.tuning.journal import Journal, Proposal
from autopipe.tuning.runners.opinions import NOISE, Doubts, Opinion, least
from autopipe.tuning.task_state import TaskState

_TOGETHER: Final = 8
"""Claims that are asked about at a time."""

_UNTRUE: Final = "two others need {times:.1f} times as long for what it says to be the fastest"


class Claim(NamedTuple):
    """What somebody says of a schedule."""

    state: TaskState
    proposal: Proposal
    measurement: Measurement


Makes = Callable[[TaskState, Proposal], Repeatable]
"""Returns what can be timed of a schedule of a task."""


class AsksOthers(Protocol):
    """A runner that can ask others than who has measured."""

    doubts: Doubts
    """Who is not believed any more."""

    @property
    def witnesses(self) -> int | None:
        """How many others can be asked what one worker says; null for a runner without workers."""

    def witnessed(self, candidates: Sequence[Repeatable]) -> Opinion | None:
        """Return what two workers say of candidates; null where no two can be asked."""

    def confront(self, worker: str, candidate: Repeatable, why: str) -> None:
        """Have a worker time a candidate again beside two others; doubt it if it alone differs."""


@dataclass(frozen=True, slots=True)
class Vetting:
    """Asks others, and takes back what is not true."""

    journal: Journal
    runner: AsksOthers
    states: Sequence[TaskState]

    def vet(self, claims: Sequence[Claim], candidate: Makes) -> list[Claim]:
        """Ask others for the times that would lead by far; return what they do not find.

        Its schedule gets the time that they find, and is left out where nobody can tell who is
        right.
        """
        refuted: list[Claim] = []
        while some := _leading(claims, refuted, self.journal.doubted)[:_TOGETHER]:
            opinion = self.runner.witnessed([candidate(each.state, each.proposal) for each in some])
            self.disbelieve()
            if opinion is None:
                return refuted
            for claim, found in zip(some, opinion.measurements, strict=True):
                if _found(claim, found) <= NOISE:
                    claim.state.witnessed = min(claim.state.witnessed, least(claim.measurement))
                else:
                    refuted.append(claim)
                    self._refute(claim, found, candidate, decided=not opinion.apart)
            self.disbelieve()
        return refuted

    def unmask(self, candidate: Makes) -> bool:
        """Hold winners against what was said of them; tell whether somebody was found out.

        Then what is left is searched once more, for there are trials again.
        """
        before = set(self.journal.doubted)
        for state in self.states:
            if state.task.name not in self.runner.doubts.undecided:
                self._unmask(state, candidate)
        self.disbelieve()
        return self.journal.doubted != before

    def word(self) -> FarmWord | None:
        """Return what the times are worth; null where no worker of a farm has told any."""
        witnesses, doubts = self.runner.witnesses, self.runner.doubts
        if witnesses is None:
            return None
        undecided = tuple(sorted(doubts.undecided))
        return FarmWord(
            witnesses=witnesses, doubted=dict(doubts.why),
            **({"undecided": undecided} if undecided else {}),
        )  # fmt: skip

    def disbelieve(self) -> None:
        """Take back what workers have said that are not believed any more."""
        for worker, why in self.runner.doubts.why.items():
            if worker in self.journal.doubted:
                continue
            self.journal.doubt(worker, why)
            for state in self.states:
                _take_back(state, worker, self.journal)

    def _refute(self, claim: Claim, found: Measurement, candidate: Makes, *, decided: bool) -> None:
        """Take back a claim that others do not find, and doubt who repeats it to their face."""
        state, proposal, by = claim.state, claim.proposal, claim.measurement.by
        if found.error is not None or by in self.runner.doubts.why:
            return
        if not decided or by is None:
            self.journal.condemn(state, proposal)
        else:
            why = _UNTRUE.format(times=_found(claim, found))
            self.runner.confront(by, candidate(state, proposal), why)
            self.runner.doubts.slip(by, why)
            self.journal.correct(state, proposal, found)
        _look_again(state, self.journal)

    def _unmask(self, state: TaskState, candidate: Makes) -> None:
        settled = {
            Proposal.of(row.record): min(row.record.seconds)
            for row in self.journal.settled_rows(state)
        }
        rows = [
            row
            for row in self.journal.rows(state)
            if Proposal.of(row.record) in settled and row.record.seconds
            and not row.record.session.endswith(RUN_OFF)
        ]  # fmt: skip
        by = self.journal.store.workers(row.id for row in rows)
        for row in rows:
            proposal = Proposal.of(row.record)
            times = settled[proposal] / max(row.record.seconds)
            if times > NOISE and row.id in by:
                why = _UNTRUE.format(times=times)
                self.runner.confront(by[row.id], candidate(state, proposal), why)


def _found(claim: Claim, found: Measurement) -> float:
    """Return how many times as long as was claimed others need."""
    return least(found) / max(claim.measurement.seconds)


def _leading(claims: Sequence[Claim], refuted: Sequence[Claim], doubted: set[str]) -> list[Claim]:
    """Return the best claim of each task that is far better than what others have found of it."""
    best: dict[str, Claim] = {}
    for claim in claims:
        known = best.get(claim.state.task.workload)
        believed = claim not in refuted and claim.measurement.by not in doubted
        if believed and (known is None or least(claim.measurement) < least(known.measurement)):
            best[claim.state.task.workload] = claim
    return [
        claim
        for claim in best.values()
        if claim.measurement.by is not None
        and NOISE * least(claim.measurement) < claim.state.witnessed
    ]


def _take_back(state: TaskState, worker: str, journal: Journal) -> None:
    """Have a task go on without the trials of a worker."""
    state.give_back(worker)
    state.stopped = None if state.by else state.stopped
    _look_again(state, journal)


def _look_again(state: TaskState, journal: Journal) -> None:
    """Find the best of a task anew, of all and of each contender."""
    best = journal.best(state)
    state.best = best.record.median if best is not None else float("inf")
    state.stale = 0
    contest = state.contest
    contest.reached.clear()
    for entry in contest.entries.values():
        entry.best = float("inf")
    for row in journal.rows(state):
        by, seconds = Proposal.of(row.record).by, row.record.median
        contest.note(by.implementation, seconds)
        if by in contest.entries:
            contest.entries[by].best = min(contest.entries[by].best, seconds)
