"""Runs a build and its reference on the same inputs and compares every output."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import safe_open

from autopipe.artifacts.verification import CheckedCase, OutputComparison, Tolerance, Verification
from autopipe.compiler.library import samples
from autopipe.config import Verify
from autopipe.errors import GateError
from autopipe.store import arrays
from autopipe.verification import reference
from autopipe.verification.compare import (
    check_names,
    coarse,
    compare,
    constant,
    lifeless,
    magnitude,
    tolerance,
    widened,
)
from autopipe.verification.contained_build import BuildCrash, ContainedBuild
from autopipe.verification.inputs import Case, cases, nudged, redrawn, specials
from autopipe.verification.limits import input_limits
from autopipe.verification.moved import with_moved_weights
from autopipe.verification.operators import USUAL, Operators
from autopipe.verification.reference import Expected

_INSIDE = 2.0**-12
"""Share that inputs are moved by to see where roundings to bytes fall: far less than a step."""


def verify(
    model: ContainedBuild,
    imported: Path,
    options: Verify,
    work: Path,
    given: Mapping[str, Path] | None = None,
) -> Verification:
    """Compare a build with the artifact of *import* that it was built from, on every case.

    `given` are files of real inputs by the names of their cases. `work` takes inputs and expected
    outputs; the caller empties it. Raises GateError where numbers, shapes, dtypes or names differ,
    SetupError where no reference is installed, ConfigError for real inputs that do not fit.
    """
    ports = model.signature.inputs
    limits = input_limits(imported, ports)
    drawn = list(cases(ports, limits, count=options.cases, seed=options.seed))
    real = given or {}
    for name, file in real.items():
        drawn.append(Case(name, edge=False, arrays=samples.load(file, ports, limits)))
    special = list(specials(ports, limits, seed=options.seed))
    oracle = _Oracle(imported, reference.choose(options.reference, imported), work)
    known, expected = oracle.ask([*drawn, *special])
    check_names([port.name for port in model.signature.outputs], expected.outputs)
    warnings = [f"{refusal}; {expected.engine} took its place" for refusal in expected.refusals]
    for place, case in enumerate(drawn):
        others = redrawn(case, ports, limits, (options.seed, place))
        drawn_by_us = not case.edge and case.name not in real
        if drawn_by_us and (better := oracle.better(others, known[place])):
            other, known[place] = better
            drawn[place] = replace(case, arrays=other.arrays)
            why = "on others the reference is not finite"
            warnings.append(f"case {case.name!r} has numbers {other.name}: {why}")
    judge = _Judge(model, oracle, options, Operators(imported), _typical(drawn, known))
    checked = tuple(map(judge.checked, drawn, known))
    answers = known[len(drawn) :]
    apart = tuple(map(judge.special, special, answers))
    _raise_failure(checked)
    _raise_failure([case for case, of in zip(apart, answers, strict=True) if judge.binds(case, of)])
    return Verification(
        reference=expected.engine,
        reference_version=expected.version,
        cases=checked,
        special=apart,
        warnings=(*warnings, *_warnings(checked, known, expected), *_crashes(apart)),
    )


class _Answer(dict[str, np.ndarray]):
    """The outputs of the reference for one case, or why it refused it."""

    refusal: str | None = None


class _Oracle:
    """Asks the reference, case by case in files."""

    def __init__(self, imported: Path, engines: Sequence[str], work: Path) -> None:
        self._imported, self._engines, self._work = imported, engines, work
        self._asked = 0

    def ask(
        self, wanted: Sequence[Case], model: Path | None = None
    ) -> tuple[list[_Answer], Expected]:
        """Return what the reference computes for each case; it may refuse an edge.

        `model` is the folder of another reference than that of *import*.
        """
        paths = []
        for case in wanted:
            paths.append(self._work / f"{self._asked}.safetensors")
            arrays.save(case.arrays, paths[-1])
            self._asked += 1
        optional = [path for case, path in zip(wanted, paths, strict=True) if case.edge]
        expected = reference.expect(self._engines, model or self._imported, paths, optional)
        self._engines = (expected.engine,)
        return [_answer(file, expected) for file in expected.files], expected

    def better(self, drawn: Iterator[Case], answer: _Answer) -> tuple[Case, _Answer] | None:
        """Return the one of other inputs on which most is finite; None if that is no more."""
        if _finite_share(answer) == 1:
            return None
        others = list(drawn)
        found = max(zip(others, self.ask(others)[0], strict=True), key=_usefulness)
        return found if _usefulness(found) > _finite_share(answer) else None

    def moved(self, case: Case, seeds: Sequence[int], share: float) -> Iterator[_Answer]:
        """Yield what the reference computes for a case with its weights moved, seed by seed."""
        optional = Case(case.name, edge=True, arrays=case.arrays)
        for seed in seeds:
            folder = self._work / f"moved-{seed}"
            if folder.exists() or with_moved_weights(self._imported, folder, seed, share):
                yield from self.ask([optional], folder)[0]


def _answer(file: Path, expected: Expected) -> _Answer:
    answer = _Answer()
    answer.refusal = expected.refused.get(file)
    if answer.refusal is None:
        with safe_open(file, framework="np") as stored:
            answer.update((name, stored.get_tensor(name)) for name in expected.outputs)
    return answer


def _finite_share(answer: _Answer) -> float:
    shares = [float(np.isfinite(array).mean()) for array in answer.values() if array.size]
    return sum(shares) / len(shares) if shares else 1.0


def _usefulness(drawn: tuple[Case, _Answer]) -> float:
    return _finite_share(drawn[1])


@dataclass(frozen=True, slots=True)
class _Judge:
    """Compares the build with the reference."""

    model: ContainedBuild
    oracle: _Oracle
    options: Verify
    operators: Operators
    typical: dict[str, float]
    """Each output's magnitude on random inputs: on an edge there may be noise alone."""

    def checked(self, case: Case, theirs: _Answer) -> CheckedCase:
        """Compare a case that a model is made for, or near it."""
        if case.edge and (theirs.refusal is not None or _finite_share(theirs) < 1):
            return CheckedCase(name=case.name, skipped=True, outputs=())
        try:
            ours = self.model(case.arrays)
        except BuildCrash as crash:
            return self._crashed(case, theirs, crash)
        outputs = [
            lifeless(name, array, allowed) or compare(name, ours[name], array, allowed)
            for name, array in theirs.items()
            for allowed in [self._allowed(name, array, edge=case.edge)]
        ]
        wavers = case.edge or self.operators.round
        if wavers and self.options.atol is None and any(output.failure for output in outputs):
            outputs = self._widened(case, theirs, ours, outputs)
        return CheckedCase(name=case.name, skipped=False, outputs=tuple(outputs))

    def special(self, case: Case, theirs: _Answer) -> CheckedCase:
        """Compare a case with numbers that most models never see."""
        if theirs.refusal is not None:
            return CheckedCase(name=case.name, skipped=True, outputs=())
        try:
            ours = self.model(case.arrays)
        except BuildCrash as crash:
            return self._crashed(case, theirs, crash)
        outputs = [
            compare(name, ours[name], array, self._allowed(name, array, edge=True))
            for name, array in theirs.items()
        ]
        wavers = case.name in USUAL and self.options.atol is None and self.binds(case, theirs)
        if wavers and any(output.failure for output in outputs):
            outputs = self._widened(case, theirs, ours, outputs)
        return CheckedCase(name=case.name, skipped=False, outputs=tuple(outputs))

    def _crashed(self, case: Case, theirs: _Answer, crash: BuildCrash) -> CheckedCase:
        """Return a case that the build did not survive."""
        why = f"the build crashed on it ({crash}), as a package of it would"
        outputs = tuple(
            OutputComparison(
                output=name, tolerance=self._allowed(name, array, edge=True), failure=why
            )
            for name, array in theirs.items()
        )
        return CheckedCase(name=case.name, skipped=False, crashed=True, outputs=outputs)

    def binds(self, case: Case | CheckedCase, theirs: _Answer) -> bool:
        """Tell whether a build has to pass a special case."""
        return self.operators.promised(case.name, finite=_finite_share(theirs) == 1)

    def _allowed(self, name: str, array: np.ndarray, *, edge: bool) -> Tolerance:
        scale = max(self.typical[name], magnitude(array))
        allowed = tolerance(array.dtype, scale, self.options.rtol, self.options.atol, edge=edge)
        if self.options.atol is not None:
            return allowed
        return coarse(allowed, self.operators.floor(name, array.dtype))

    def _widened(
        self,
        case: Case,
        theirs: _Answer,
        ours: dict[str, np.ndarray],
        outputs: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """Compare once more, where the reference itself wavers by more than is allowed."""
        moves = [_INSIDE] * 3 if self.operators.round else [0.0]
        moved = [nudged(case, self.options.seed + i, by) for i, by in enumerate(moves)]
        answers, _ = self.oracle.ask(
            [Case(near.name, edge=True, arrays=near.arrays) for near in moved]
        )
        if self.operators.round and all(a.dtype.kind != "f" for a in case.arrays.values()):
            seeds = [self.options.seed + i for i in range(len(moves))]
            answers += self.oracle.moved(case, seeds, _INSIDE)
        found = []
        for output in outputs:
            name, allowed = output.output, output.tolerance
            for answer in answers:
                if name in answer:
                    wider = widened(output.tolerance, theirs[name], answer[name])
                    allowed = coarse(allowed, wider.atol)
            found.append(compare(name, ours[name], theirs[name], allowed))
        return found


def _crashes(special: Sequence[CheckedCase]) -> Iterator[str]:
    for case in special:
        if case.crashed:
            yield f"case {case.name!r}: {case.outputs[0].failure}; never give it such numbers"


def _typical(drawn: Sequence[Case], known: Sequence[_Answer]) -> dict[str, float]:
    answers = [answer for case, answer in zip(drawn, known, strict=False) if not case.edge]
    return {name: max(magnitude(answer[name]) for answer in answers) for name in answers[0]}


def _warnings(
    checked: Sequence[CheckedCase], known: Sequence[_Answer], expected: Expected
) -> Iterator[str]:
    for case, answer in zip(checked, known, strict=False):
        if case.skipped:
            why = f": {answer.refusal}" if answer.refusal else " is not finite on it"
            yield f"case {case.name!r} is skipped: the reference{why}"
    kept = [answer for case, answer in zip(checked, known, strict=False) if not case.skipped]
    for name in expected.outputs:
        reason = constant(answer[name] for answer in kept)
        if reason:
            yield f"output {name!r} of the reference {reason}: comparing it proves nothing"


def _raise_failure(checked: Sequence[CheckedCase]) -> None:
    failed = [(case, output) for case in checked for output in case.outputs if output.failure]
    if not failed:
        return
    case, worst = max(failed, key=lambda pair: pair[1].max_abs or np.inf)
    message = f"output {worst.output!r} is wrong on case {case.name!r}: {worst.failure}"
    if worst.max_abs is not None:
        message += f"; largest error {worst.max_abs:.3g}"
        message += f" ({worst.max_rel:.3g} relative)" if worst.max_rel is not None else ""
        message += f", allowed rtol {worst.tolerance.rtol:.3g} and atol {worst.tolerance.atol:.3g}"
    if len(failed) > 1:
        message += f"; {len(failed)} comparisons fail in all"
    raise GateError(f"{message}; {_advice([output for _, output in failed])}")


def _advice(failed: Sequence[OutputComparison]) -> str:
    """Say which one number would let all of them pass."""
    settings = []
    for name, values in (
        ("atol", [output.enough_atol for output in failed]),
        ("rtol", [output.enough_rtol for output in failed]),
    ):
        enough = [value for value in values if value is not None]
        if len(enough) == len(values):
            settings.append(f"verify.{name}: {max(enough):g}")
    return f"{' or '.join(settings)} would pass" if settings else "no tolerance would pass"
