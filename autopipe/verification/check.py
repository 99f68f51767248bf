"""Runs a build and its reference on the same inputs and compares every output."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autopipe.artifacts.verification import CheckedCase, OutputComparison, Tolerance, Verification
from autopipe.config import Verify
from autopipe.errors import StageError
from autopipe.verification import doubts, reference, rows
from autopipe.verification.case_source import Batch, CaseSource
from autopipe.verification.compare import (
    check_names,
    coarse,
    compare,
    lifeless,
    magnitude,
    noisy,
    tolerance,
    undetermined,
    widened,
)
from autopipe.verification.contained_build import BuildCrash, ContainedBuild
from autopipe.verification.inputs import Case, nudged
from autopipe.verification.operators import NAN, USUAL, Operators
from autopipe.verification.oracle import Oracle, ReferenceAnswer, finite_share
from autopipe.verification.reference import Expected
from autopipe.verification.rounding import Rounding
from autopipe.verification.worst import raise_worst

_INSIDE = 2.0**-12
"""Share that inputs are moved by to see where roundings to bytes fall: far less than a step."""


_HAIR = 2.0**-14
"""Share that inputs are moved by to see which rows are chosen for less: some hundred roundings,
since a model adds up many."""
_HAIRS = 3
"""Times that they are moved."""


def verify(
    model: ContainedBuild,
    imported: Path,
    options: Verify,
    work: Path,
    given: Mapping[str, Path] | None = None,
) -> Verification:
    """Compare a build with the artifact of *import* that it was built from, on every case.

    `given` are files of real inputs by the names of their cases. `work` takes inputs and expected
    outputs; the caller empties it. A build with rounded weights is compared with the model that has
    them, too. Raises GateError where numbers, shapes, dtypes or names differ, ModelError where the
    model itself can not run at a size that it may have, SetupError where no reference is installed,
    ConfigError for real inputs that do not fit.
    """
    engines = reference.choose(options.reference, imported)
    plain = Oracle(imported, engines, work)
    rounds = bool(model.rounded or model.short)
    rounding = Rounding.of(model, imported, plain, options, work) if rounds else None
    oracle = rounding.oracle if rounding else plain
    trials = CaseSource(model.signature, imported, options)
    operators = Operators(imported, model.signature.device)
    checker = _Checker(model, imported, work, oracle, trials, options, operators, rounding)
    found = [checker.checked(batch) for batch in trials.batches(given or {})]
    expected = found[0].expected
    warnings = Counter(warning for one in found for warning in one.warnings)
    refusals = [f"{refusal}; {expected.engine} took its place" for refusal in expected.refusals]
    return Verification(
        reference=expected.engine,
        reference_version=expected.version,
        cases=tuple(case for one in found for case in one.cases),
        special=tuple(case for one in found for case in one.special),
        warnings=(
            *refusals,
            *(f"{text} (at {n} sizes)" if n > 1 else text for text, n in warnings.items()),
        ),
        rounded_by=max(one.rounded_by for one in found) if rounding else None,
    )


@dataclass(frozen=True, slots=True)
class _BatchResult:
    """What comparing the cases of a batch showed."""

    cases: tuple[CheckedCase, ...]
    special: tuple[CheckedCase, ...]
    warnings: tuple[str, ...]
    expected: Expected
    rounded_by: float = 0.0
    """How far rounded weights move an output, relative to its norm."""


@dataclass(frozen=True, slots=True)
class _Checker:
    """Compares batch after batch."""

    model: ContainedBuild
    imported: Path
    work: Path
    oracle: Oracle
    source: CaseSource
    options: Verify
    operators: Operators
    rounding: Rounding | None = None

    def checked(self, batch: Batch) -> _BatchResult:
        """Compare all cases of a batch. Raises GateError for the worst that is wrong."""
        drawn, special = list(batch.drawn), batch.special
        known, expected = self.oracle.ask([*drawn, *special])
        check_names([port.name for port in self.model.signature.outputs], expected.outputs)
        warnings = list(self._redrawn(batch, drawn, known))
        typical = _typical(drawn, known)
        steps = self.operators.round or (self.rounding is not None and self.rounding.inside)
        judge = _Judge(self.model, self.oracle, self.options, self.operators, typical, steps)
        checked = tuple(map(judge.checked, drawn, known))
        answers = self._propagated(special, known[len(drawn) :])
        apart = tuple(map(judge.special, special, answers))
        raise_worst(checked)
        raise_worst([case for case, of in zip(apart, answers, strict=True)
                     if judge.binds(case, of)])  # fmt: skip
        warnings += doubts.of_cases(checked, known, expected, complete=bool(special))
        by = self.rounding.moved_by(drawn, known) if self.rounding else 0.0
        return _BatchResult(checked, apart, (*warnings, *doubts.of_crashes(apart)), expected, by)

    def _propagated(
        self, special: Sequence[Case], answers: Sequence[ReferenceAnswer]
    ) -> list[ReferenceAnswer]:
        """Return the answers of special cases, that of `plain` where other references lose NaN."""
        lost = self.operators.propagate
        return [
            self._plain(case) if lost and case.name == NAN else answer
            for case, answer in zip(special, answers, strict=True)
        ]

    def _plain(self, case: Case) -> ReferenceAnswer:
        oracle = Oracle(self.imported, (reference.PLAIN,), self.work)
        try:
            return oracle.ask([case])[0][0]
        except StageError as error:
            answer = ReferenceAnswer()
            answer.refusal = str(error)
            return answer

    def _redrawn(
        self, batch: Batch, drawn: list[Case], known: list[ReferenceAnswer]
    ) -> Iterator[str]:
        """Put other inputs in the place of those on which the reference is not finite."""
        for place, case in enumerate(batch.drawn):
            if case.edge or case.name in batch.real:
                continue
            others = self.source.redrawn(case, place)
            if better := self.oracle.better(others, known[place]):
                other, known[place] = better
                drawn[place] = replace(case, arrays=other.arrays)
                why = "on others the reference is not finite"
                yield f"case {case.name!r} has numbers {other.name}: {why}"


@dataclass(frozen=True, slots=True)
class _Judge:
    """Compares the build with the reference."""

    model: ContainedBuild
    oracle: Oracle
    options: Verify
    operators: Operators
    typical: Mapping[Hashable, Mapping[str, float]]
    """Each output's magnitude on random inputs, by the sizes: on an edge there may be noise alone.
    """
    steps: bool
    """Whether there are steps inside, at which two right programs may part."""

    def checked(self, case: Case, theirs: ReferenceAnswer) -> CheckedCase:
        """Compare a case that a model is made for, or near it."""
        if case.edge and (theirs.refusal is not None or finite_share(theirs) < 1):
            return _told(case, skipped=True)
        try:
            ours = self._ours(case)
        except BuildCrash as crash:
            return self._crashed(case, theirs, crash)
        outputs = [
            lifeless(name, array, allowed) or compare(name, ours[name], array, allowed)
            for name, array in theirs.items()
            for allowed in [self._allowed(case, name, array)]
        ]
        wavers = case.edge or self.steps
        if wavers and self.options.atol is None and any(output.failure for output in outputs):
            outputs = self._widened(case, theirs, ours, outputs)
        if self.operators.choose and any(output.failure for output in outputs):
            outputs = self._matched(case, theirs, ours, outputs)
        return _told(case, outputs)

    def special(self, case: Case, theirs: ReferenceAnswer) -> CheckedCase:
        """Compare a case with numbers that most models never see."""
        if theirs.refusal is not None:
            return _told(case, skipped=True)
        try:
            ours = self._ours(case)
        except BuildCrash as crash:
            return self._crashed(case, theirs, crash)
        outputs = [
            compare(name, ours[name], array, self._allowed(case, name, array))
            for name, array in theirs.items()
        ]
        wavers = case.name in USUAL and self.options.atol is None and self.binds(case, theirs)
        if wavers and any(output.failure for output in outputs):
            outputs = self._widened(case, theirs, ours, outputs)
        if wavers and self.operators.choose and any(output.failure for output in outputs):
            outputs = self._matched(case, theirs, ours, outputs)
        return _told(case, outputs)

    def _crashed(self, case: Case, theirs: ReferenceAnswer, crash: BuildCrash) -> CheckedCase:
        """Return a case that the build did not survive."""
        why = f"the build crashed on it ({crash}), as a package of it would"
        outputs = [
            OutputComparison(output=name, tolerance=self._allowed(case, name, array), failure=why)
            for name, array in theirs.items()
        ]
        return _told(case, outputs, crashed=True)

    def binds(self, case: Case | CheckedCase, theirs: ReferenceAnswer) -> bool:
        """Tell whether a build has to pass a special case."""
        return self.operators.promised(case.name, finite=finite_share(theirs) == 1)

    def _ours(self, case: Case) -> dict[str, np.ndarray]:
        """Run the build. With open sizes, one that refuses a size counts as crashed."""
        try:
            if case.generic:
                return self.model(case.arrays, generic=True)
            return self.model(case.arrays)
        except BuildCrash:
            raise
        except StageError as error:
            if not case.sizes:
                raise
            raise BuildCrash(str(error)) from error

    def _allowed(self, case: Case, name: str, array: np.ndarray) -> Tolerance:
        scale = max(self.typical[_key(case)][name], magnitude(array))
        rtol, atol = self.options.rtol, self.options.atol
        allowed = tolerance(array.dtype, scale, rtol, atol, edge=case.edge)
        if self.options.atol is not None:
            return allowed
        return coarse(allowed, self.operators.floor(name, array.dtype))

    def _widened(
        self,
        case: Case,
        theirs: ReferenceAnswer,
        ours: dict[str, np.ndarray],
        outputs: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """Compare once more, where the reference itself wavers by more than is allowed.

        How far a few roundings move one number hangs on luck, so of three moves the farthest tells.
        """
        moves = [_INSIDE if self.steps else 0.0] * 3
        moved = [nudged(case, self.options.seed + i, by) for i, by in enumerate(moves)]
        answers, _ = self.oracle.ask([replace(near, edge=True) for near in moved])
        if self.steps and all(a.dtype.kind != "f" for a in case.arrays.values()):
            seeds = [self.options.seed + i for i in range(len(moves))]
            answers += self.oracle.moved(case, seeds, _INSIDE)
        found = []
        for output in outputs:
            name, allowed = output.output, output.tolerance
            noise: float | None = None
            for answer in answers:
                if name in answer:
                    wider = widened(output.tolerance, theirs[name], answer[name])
                    allowed = coarse(allowed, wider.atol)
                    if case.edge and not self.steps:  # with steps, moves are no roundings
                        noise = undetermined(theirs[name], answer[name])
            allowed = noisy(allowed, theirs[name]) if noise else allowed
            compared = compare(name, ours[name], theirs[name], allowed)
            found.append(compared.model_copy(update={"undetermined": noise}))
        return found

    def _matched(
        self,
        case: Case,
        theirs: ReferenceAnswer,
        ours: dict[str, np.ndarray],
        outputs: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """Compare once more the rows that a model chooses, as `rows` says."""
        seeds = [self.options.seed + i for i in range(_HAIRS)]
        near = [replace(nudged(case, seed, _HAIR), edge=True) for seed in seeds]
        moved = [*self.oracle.ask(near)[0], *self.oracle.moved(case, seeds, _HAIR)]
        shapes = {port.name: port.shape for port in self.model.signature.outputs}
        mine, wanted = rows.of(ours, shapes), rows.of(theirs, shapes)
        hair = [rows.of(answer, shapes) for answer in moved if answer.refusal is None]
        allowed = {output.output: output.tolerance for output in outputs}
        found = {output.output: output for output in outputs}
        for names in rows.of_same_length(wanted):
            if not any(found[name].failure for name in names):
                continue
            count = rows.elsewhere(mine, wanted, names, allowed)
            others = (rows.elsewhere(other, wanted, names, allowed) or 0 for other in hair)
            if count is not None and count <= max(others, default=0):
                for name in names:
                    found[name] = OutputComparison(
                        output=name, tolerance=allowed[name], elsewhere=count
                    )
        return list(found.values())


def _told(
    case: Case,
    outputs: Sequence[OutputComparison] = (),
    *,
    skipped: bool = False,
    crashed: bool = False,
) -> CheckedCase:
    return CheckedCase(
        name=case.name, sizes=dict(case.sizes), generic=case.generic, skipped=skipped,
        crashed=crashed, outputs=tuple(outputs),
    )  # fmt: skip


def _key(case: Case) -> Hashable:
    return tuple(case.sizes.values())


def _typical(
    drawn: Sequence[Case], known: Sequence[ReferenceAnswer]
) -> dict[Hashable, dict[str, float]]:
    found: dict[Hashable, dict[str, float]] = {}
    for case, answer in zip(drawn, known, strict=False):
        if not case.edge:
            scales = found.setdefault(_key(case), {})
            for name, array in answer.items():
                scales[name] = max(magnitude(array), scales.get(name, 0.0))
    return found
