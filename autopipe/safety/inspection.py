"""Checks schedules in child processes before they are selected, and stores the verdicts."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self

import tvm_ffi

from autopipe import foreign
from autopipe.environment.facet import Facet
from autopipe.errors import StageError, StoreError, TargetError
from autopipe.measure import check
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.stage import Context
from autopipe.processes.contained import Failed
from autopipe.safety.checking import Checker, Outcome, Postponed
from autopipe.safety.failures import Failures, KnownFailure
from autopipe.safety.job import Piece
from autopipe.safety.quarantine import Quarantine
from autopipe.safety.verdict import Checked, Finding, Verdict
from autopipe.store import files
from autopipe.tasks.op_info import ATTRIBUTE

_LARGEST: Final = 1 << 20
"""Bytes of a verdict."""


NO_TIME: Final = Verdict(Finding.UNCHECKED, "there was no time for its check")
"""The verdict on a schedule whose check is postponed."""


class PieceChecker(Protocol):
    """Runs the checks of schedules."""

    def check(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """Check each piece; return the outcomes in order."""

    def plain_runs(self, piece: Piece) -> bool:
        """Return whether the plain loops of a piece run, and agree with themselves."""


class ScheduleChecker(Protocol):
    """Judges whether schedules are right."""

    def needs_check(self, suspect: Piece) -> bool:
        """Return whether a schedule has to be run to judge it."""

    def judge(self, suspects: Sequence[Piece]) -> list[Verdict]:
        """Return a verdict for each."""


@dataclass(slots=True)
class Inspector:
    """Judges schedules, and records the failures of this run.

    A verdict holds for the same loops, target and compiler.
    """

    folder: Path
    """Folder of verdicts and wrong schedules."""
    facts: Mapping[Facet, Mapping[str, object]]
    checker: PieceChecker | TargetError
    """The checker, or why there is none for this target."""
    failures: Failures
    failed: dict[str, Verdict] = field(default_factory=dict)
    """Verdicts of failures, which hold for this run: another may have more time or memory."""
    suspected: set[str] = field(default_factory=set)
    """Schedules that failed in an earlier run, which are tried only once."""
    given_up: set[str] = field(default_factory=set)
    """Tasks whose plain loops exceed the available time."""

    @classmethod
    def of(
        cls,
        ctx: Context,
        failures: Failures,
        elsewhere: PieceChecker | None = None,
        patience: Callable[[], float] = lambda: math.inf,
        watch: Watch | None = None,
    ) -> Self:
        """Return the inspector of a stage, which checks schedules on this machine if it can.

        For other targets it uses the checker `elsewhere`, if given. `patience` returns the time
        limit of a check on this machine in seconds, and `watch` counts these.
        """
        from autopipe.compiler.target import machine

        checker: PieceChecker | TargetError
        try:
            machine.check(ctx.facts[Facet.TARGET])
            checker = Checker(failures.conditions, patience, watch)
        except TargetError as error:
            checker = elsewhere or error
        folder = ctx.records.parent
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, ctx.facts, checker, failures)

    def judge(self, suspects: Sequence[Piece]) -> list[Verdict]:
        """Return a verdict for each suspect; wrong schedules are quarantined.

        Raises StageError for a workload that itself is invalid.
        """
        if isinstance(self.checker, TargetError):
            default_verdict = Verdict(Finding.UNCHECKED, str(self.checker))
            return [
                self._recall(self._digest_suspect(suspect)) or default_verdict
                for suspect in suspects
            ]
        names = [self._digest_suspect(suspect) for suspect in suspects]
        verdicts = {
            name: self.failed.get(name)
            or self._recall(name)
            or self._find_known_failure(name, suspect)
            or (NO_TIME if suspect.task in self.given_up else None)
            for name, suspect in zip(names, suspects, strict=True)
        }
        new = {
            name: suspect
            for name, suspect in zip(names, suspects, strict=True)
            if not verdicts[name]
        }
        outcomes = self.checker.check(list(new.values()))
        for (name, suspect), outcome in zip(new.items(), outcomes, strict=True):
            verdicts[name] = self._judge_outcome(name, suspect, outcome, self.checker)
        return [verdicts[name] or Verdict(Finding.UNCHECKED) for name in names]

    def needs_check(self, suspect: Piece) -> bool:
        """Return whether a schedule has to be run to judge it."""
        return not isinstance(self.checker, TargetError) and self.recall(suspect) is None

    def _judge_outcome(
        self, name: str, suspect: Piece, outcome: Outcome, checker: PieceChecker
    ) -> Verdict:
        """Turn the outcome of a check into a verdict; a failed check is repeated once."""
        is_failure = not isinstance(outcome, Checked | Postponed)
        if is_failure and name not in self.suspected:
            (outcome,) = checker.check([suspect])
        if isinstance(outcome, Postponed):
            self.given_up.update([suspect.task] if outcome.begun else [])
            return NO_TIME
        if isinstance(outcome, StoreError):
            raise outcome
        if isinstance(outcome, Failed):
            return self._judge_failure(name, suspect, outcome, checker)
        if outcome.finding is Finding.BROKEN:
            raise StageError(f"task {suspect.task}: {outcome.reason}")
        if outcome.finding is Finding.UNCHECKED:
            return Verdict(Finding.UNCHECKED, outcome.reason)
        self.failures.passed(suspect)
        wrong = outcome.finding is Finding.WRONG
        verdict = (
            self._quarantine_wrong(name, suspect, outcome) if wrong else Verdict(Finding.RIGHT)
        )
        self._write_verdict(name, verdict)
        return verdict

    def _find_known_failure(self, name: str, suspect: Piece) -> Verdict | None:
        """Return the verdict on a schedule that failed in enough earlier runs, else None."""
        try:
            if self.failures.suspect(suspect):
                self.suspected.add(name)
        except KnownFailure as known:
            self.failed[name] = Verdict(Finding.FAILED, str(known), known.folder)
            return self.failed[name]
        return None

    def _judge_failure(
        self, name: str, suspect: Piece, error: Failed, checker: PieceChecker
    ) -> Verdict:
        """Quarantine a failed schedule, unless the plain loops of its workload fail, too."""
        if not checker.plain_runs(suspect):
            return Verdict(Finding.UNCHECKED, f"it failed, as the plain loops do: {error}")
        folder = self.failures.add(suspect, error)
        self.failed[name] = Verdict(Finding.FAILED, str(error), folder)
        return self.failed[name]

    def _quarantine_wrong(self, name: str, suspect: Piece, checked: Checked) -> Verdict:
        place = Quarantine(self.folder / "wrong", self.facts[Facet.TARGET])
        folder = place.keep(name[:16], suspect, checked, self.failures.conditions)
        origin = f"{suspect.engine} on {suspect.implementation}"
        self.failures.warn(
            f"task {suspect.task}: the schedule of {origin} is wrong and was put aside:"
            f" {checked.reason}; python {folder / 'reproduce.py'} shows it"
        )
        return Verdict(Finding.WRONG, checked.reason, str(folder))

    def _digest_suspect(self, suspect: Piece) -> str:
        """Digest everything that a verdict depends on: sha256, 64 hex digits."""
        modules = (suspect.workload, suspect.candidate)
        bare = [module["main"].without_attr(ATTRIBUTE) for module in modules]
        loops = [tvm_ffi.structural_hash(function, map_free_vars=True) for function in bare]
        facts = [self.facts[Facet.TARGET], self.facts.get(Facet.TVM)]
        text = json.dumps([check.VERSION, loops, facts], sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()

    def recall(self, suspect: Piece) -> Verdict | None:
        """Return the verdict of an earlier check; None if there was none."""
        return self._recall(self._digest_suspect(suspect))

    def _recall(self, name: str) -> Verdict | None:
        try:
            text = files.read_or_discard(self.folder / "verdicts" / name, _LARGEST)
            return Verdict.read(foreign.parse_object(text or b""))
        except (OSError, ValueError):
            return None

    def _write_verdict(self, name: str, verdict: Verdict) -> None:
        folder = self.folder / "verdicts"
        folder.mkdir(exist_ok=True)
        with files.wrap_os_errors(folder):
            files.replace(folder / name, json.dumps(asdict(verdict)).encode(), folder)
