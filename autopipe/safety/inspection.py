"""Checks schedules before they may win, in children, and remembers what was found."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, Self

import tvm
import tvm_ffi
from tvm import te
from tvm.s_tir import Schedule

from autopipe import foreign
from autopipe.compiler.target.target import is_gpu
from autopipe.config.tuning import Measure
from autopipe.environment.facet import Facet
from autopipe.errors import TargetError
from autopipe.measure import check
from autopipe.measure.local import Local, Measurer
from autopipe.pipeline.stage import Context
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import Failure, How
from autopipe.safety.failures import Failures, Known
from autopipe.safety.job import Piece, bounded, do
from autopipe.safety.quarantine import Quarantine, Suspect
from autopipe.store import files

_LIMITS: Final = Measure(build_timeout=120.0, memory=16384)
"""A check is part of the build, as far as the child knows that makes it."""

_LARGEST: Final = 1 << 20
"""Bytes of a verdict."""

_WRONG: Final = f"{check.WrongAnswer.__name__}: "
_NOT_CHECKED: Final = f"{check.NotChecked.__name__}: "


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found."""

    right: bool | None
    """Null if it could not be made."""
    reason: str | None = None
    """Why it is wrong, or was not checked."""
    folder: str | None = None
    """Where a wrong schedule is kept."""
    failed: bool = False
    """Whether it is not wrong, but crashed, hung or took too much memory."""

    @property
    def sound(self) -> bool:
        """Whether its fields have their types; a file may say anything."""
        kinds = ((self.right, bool), (self.reason, str), (self.folder, str))
        fits = all(value is None or isinstance(value, kind) for value, kind in kinds)
        return fits and isinstance(self.failed, bool)


class Judge(Protocol):
    """Tells right schedules from wrong ones."""

    def judge(self, suspects: Sequence[Suspect]) -> list[Verdict]:
        """Return a verdict for each."""


@dataclass(slots=True)
class Inspector:
    """Judges schedules, and keeps what failed in this run.

    A verdict holds for the same loops, target and compiler.
    """

    folder: Path
    """Where verdicts and wrong schedules are kept."""
    facts: Mapping[Facet, Mapping[str, object]]
    target: tvm.target.Target
    measurer: Measurer | TargetError
    """Who runs things, or why nobody can."""
    failures: Failures
    failed: dict[str, Verdict] = field(default_factory=dict)
    """Verdicts of failures, which hold for this run: another may have more time or memory."""
    suspected: set[str] = field(default_factory=set)
    """What failed in an earlier run, so that it is tried only once."""

    @classmethod
    def of(cls, ctx: Context, failures: Failures) -> Self:
        """Return the inspector of a stage, which checks what this machine can run."""
        from autopipe.compiler.target import machine

        conditions = failures.conditions
        measurer: Measurer | TargetError
        try:
            machine.check(ctx.facts[Facet.TARGET])
            measurer = Local(conditions.target, conditions.hardware.cores, _LIMITS)
        except TargetError as error:
            measurer = error
        folder = ctx.records.parent
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, ctx.facts, conditions.target, measurer, failures)

    def judge(self, suspects: Sequence[Suspect]) -> list[Verdict]:
        """Return a verdict for each; what is wrong is put aside."""
        if isinstance(self.measurer, TargetError):
            return [Verdict(None, str(self.measurer))] * len(suspects)
        names = [self._name(suspect) for suspect in suspects]
        known = {
            name: self.failed.get(name) or self._recall(name) or self._hopeless(name, suspect)
            for name, suspect in zip(names, suspects, strict=True)
        }
        new = {name: each for name, each in zip(names, suspects, strict=True) if not known[name]}
        candidates = [partial(_inspect, each, self.target) for each in new.values()]
        results = self.measurer.measure(candidates, rivals=False)
        for (name, suspect), result in zip(new.items(), results, strict=True):
            known[name] = self._judged(name, suspect, result.error or "", self.measurer)
        return [known[name] or Verdict(None) for name in names]

    def _judged(self, name: str, suspect: Suspect, error: str, measurer: Measurer) -> Verdict:
        if error and not error.startswith((_WRONG, _NOT_CHECKED)):
            try:
                if name in self.suspected:
                    return self._failed(name, suspect, Failed(Failure(How.RAISED, error)), measurer)
                error = self._again(suspect.piece)
            except Failed as failed:
                return self._failed(name, suspect, failed, measurer)
        if error and not error.startswith(_WRONG):
            return Verdict(None, error)
        self.failures.passed(suspect.piece)
        verdict = self._wrong(name, suspect, error) if error else Verdict(right=True)
        self._remember(name, verdict)
        return verdict

    def _hopeless(self, name: str, suspect: Suspect) -> Verdict | None:
        """Return a verdict on what failed in earlier runs, if nobody is to try it again."""
        try:
            if self.failures.suspect(suspect.piece):
                self.suspected.add(name)
        except Known as known:
            self.failed[name] = Verdict(False, str(known), known.folder, failed=True)  # noqa: FBT003 - a field
            return self.failed[name]
        return None

    def _again(self, piece: Piece) -> str:
        """Check once more what failed; return what is wrong, if anything. Raises Failed."""
        conditions = self.failures.conditions
        limited = bounded(piece, conditions)
        with Child(lambda: lambda _: do(piece, conditions), bounded=limited) as child:
            return str(child.ask() or "")

    def _failed(self, name: str, suspect: Suspect, error: Failed, measurer: Measurer) -> Verdict:
        """Put a failure aside, unless the plain loops fail too: it is not the schedule's then."""
        (plain,) = measurer.measure([partial(_plain_runs, suspect, self.target)])
        if plain.error is not None:
            return Verdict(None, f"it failed, as the plain loops do: {error}")
        folder = self.failures.add(suspect.piece, error)
        self.failed[name] = Verdict(False, str(error), folder, failed=True)  # noqa: FBT003 - a field
        return self.failed[name]

    def _wrong(self, name: str, suspect: Suspect, error: str) -> Verdict:
        reason = error.removeprefix(_WRONG)
        place = Quarantine(self.folder / "wrong", self.facts[Facet.TARGET])
        kept = place.keep(name[:16], suspect, reason)
        who = f"{suspect.engine} on {suspect.implementation}"
        self.failures.warn(
            f"task {suspect.task}: the schedule of {who} is wrong and was put aside:"
            f" {reason}; python {kept / 'reproduce.py'} shows it"
        )
        return Verdict(False, reason, str(kept))  # noqa: FBT003 - a field

    def _name(self, suspect: Suspect) -> str:
        """Digest all that a verdict depends on: sha256, 64 hex digits."""
        loops = [tvm_ffi.structural_hash(each["main"]) for each in suspect[-2:]]
        facts = [self.facts[Facet.TARGET], self.facts.get(Facet.TVM)]
        text = json.dumps([check.VERSION, loops, facts], sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()

    def _recall(self, name: str) -> Verdict | None:
        try:
            found = Verdict(
                **foreign.parse_object(files.read(self.folder / "verdicts" / name, _LARGEST))
            )
        except (OSError, ValueError, TypeError):
            return None
        return found if found.sound else None

    def _remember(self, name: str, verdict: Verdict) -> None:
        folder = self.folder / "verdicts"
        folder.mkdir(exist_ok=True)
        with files.guard(folder):
            files.replace(folder / name, json.dumps(asdict(verdict)).encode(), folder)


def _inspect(suspect: Suspect, target: tvm.target.Target) -> tvm.IRModule:
    check.checked(suspect.workload, suspect.scheduled, target)
    return nothing(target)


def _plain_runs(suspect: Suspect, target: tvm.target.Target) -> tvm.IRModule:
    here = target.host if is_gpu(target) else target
    check.checked(suspect.workload, suspect.workload, here)
    return nothing(target)


def nothing(target: tvm.target.Target) -> tvm.IRModule:
    """Return what is over at once: a measurer wants something to time."""
    x = te.placeholder((1,), "float32")
    sch = Schedule(te.create_prim_func([x, te.compute((1,), lambda i: x[i], name="copy")]))
    if is_gpu(target):
        (loop,) = sch.get_loops(sch.get_sblock("copy"))
        sch.bind(loop, "threadIdx.x")
    return sch.mod
