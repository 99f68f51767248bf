"""Runs a build and its reference on the same inputs and compares every output."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.promises import NAN, OutputPromises
from autopipe.artifacts.verification import CheckedCase, Verification
from autopipe.compiler.step_counter import ReportDone, count_steps, count_with, report_each
from autopipe.config.verify import Verify
from autopipe.errors import ConfigError, StageError, WrongBuildError
from autopipe.pipeline.counted import Watch
from autopipe.verification import doubts, reference
from autopipe.verification.case_source import Batch, CaseSource
from autopipe.verification.compare import check_names, compute_rms
from autopipe.verification.contained_build import ContainedBuild
from autopipe.verification.inputs import Case
from autopipe.verification.judge import CaseJudge, to_size_key
from autopipe.verification.oracle import Oracle, ReferenceAnswer
from autopipe.verification.reference import Expected
from autopipe.verification.rounding import Rounding
from autopipe.verification.second_opinion import ComparedCase, resolve_disagreements
from autopipe.verification.worst import describe_worst, find_worst

_Compare = Callable[[CaseJudge, Case, ReferenceAnswer], CheckedCase]
"""Compares the build with what the reference answered to a case."""


def verify_build(  # noqa: PLR0913 -- what is compared, with what, and how
    model: ContainedBuild,
    imported: Path,
    options: Verify,
    work: Path,
    given: Mapping[str, Path] | None = None,
    *,
    watch: Watch | None = None,
    tell_failure: Callable[[Verification], None] = lambda _: None,
) -> Verification:
    """Compare a build with the artifact of *import* that it was built from, on every case.

    `given` are files of real inputs by the names of their cases. `work` takes inputs and expected
    outputs; the caller empties it. `watch` counts the inputs, or sizes where there are several.
    A build with rounded weights is compared with the model that has them, too. `tell_failure` gets
    the result of a build that fails, up to the batch of cases that it fails on. Raises
    WrongBuildError where numbers, shapes or dtypes differ, GateError where names do, ModelError
    where the model itself can not run at a size that it may have, SetupError where no reference is
    installed, ConfigError for real inputs that do not fit.
    """
    checker = _Checker.of(model, imported, options, work)
    batches = checker.source.batches(given or {})
    found = []
    for one in _count_batches(map(checker.checked, batches), checker.source, watch):
        found.append(one)
        if one.failure is not None:
            break
    result = _summarize_batches(found, rounded=checker.rounding is not None)
    if result.failure is not None:
        tell_failure(result)
        raise WrongBuildError(result.failure)
    return result


def _summarize_batches(found: "Sequence[_BatchResult]", *, rounded: bool) -> Verification:
    """Join the results of all batches."""
    expected = found[0].expected
    warnings = Counter(warning for one in found for warning in one.warnings)
    return Verification(
        reference=expected.engine,
        reference_version=expected.version,
        cases=tuple(case for one in found for case in one.cases),
        special=tuple(case for one in found for case in one.special),
        warnings=(
            *expected.refusals,
            *(f"{text} (at {n} sizes)" if n > 1 else text for text, n in warnings.items()),
        ),
        rounded_by=max(one.rounded_by for one in found) if rounded else None,
        failure=found[-1].failure,
    )


def find_wrong_case(  # noqa: PLR0913 -- what is compared, with what, and how
    model: ContainedBuild,
    imported: Path,
    options: Verify,
    work: Path,
    given: Mapping[str, Path] | None = None,
    *,
    name: str | None = None,
) -> tuple[Case, CheckedCase]:
    """Return the worst case that `verify_build` finds wrong; the nearest to being wrong if none is.

    With a `name`, only cases of that name count; ConfigError where there is none. Raises as
    `verify_build`, but not WrongBuildError.
    """
    checker = _Checker.of(model, imported, options, work)
    if name is not None:
        checker.source.find_case(given or {}, name)
    nearest: tuple[Case, CheckedCase] | None = None
    for batch in checker.source.batches(given or {}):
        part = batch if name is None else _select_by_name(batch, name)
        for group in checker.compared(part) if part else ():
            named = [pair for pair in group if name in {None, pair[0].name}]
            worst = find_worst([checked for _, checked in named])
            if worst is not None:
                return next(pair for pair in named if pair[1] is worst)
            nearest = max([*([nearest] if nearest else []), *named], key=_rate_error, default=None)
    if nearest is None:
        raise ConfigError(f"case {name!r} is not compared: the model promises nothing of it")
    return nearest


def _rate_error(compared: tuple[Case, CheckedCase]) -> float:
    """Return the largest part of the allowed error that an output of a case uses."""
    return max((output.used or 0.0 for output in compared[1].outputs), default=0.0)


def _select_by_name(batch: Batch, name: str) -> Batch | None:
    """Return the cases of a name after the first of a batch, which tells magnitudes of outputs.

    None where there is none of the name.
    """
    drawn = [one for at, one in enumerate(batch.drawn) if at == 0 or one.name == name]
    special = [one for one in batch.special if one.name == name]
    wanted = special or drawn[1:] or drawn[0].name == name
    return Batch(drawn, special, batch.real) if wanted else None


def _count_batches(
    found: Iterable["_BatchResult"], source: CaseSource, watch: Watch | None
) -> Iterator["_BatchResult"]:
    """Yield the result of each batch, and count the sizes; of a single one, its inputs."""
    sizes = source.count_sizes()
    if watch is not None and sizes == 1:
        with count_with(watch.count):
            yield from found
        return
    tell = watch.count("sizes compared", sizes) if watch else None
    seen: set[str] = set()
    for one in found:
        seen.update(str(case.sizes) for case in one.cases)
        if tell is not None:
            tell(len(seen))
        yield one


@dataclass(frozen=True, slots=True)
class _BatchResult:
    """What comparing the cases of a batch showed."""

    cases: tuple[CheckedCase, ...]
    special: tuple[CheckedCase, ...]
    warnings: tuple[str, ...]
    expected: Expected
    rounded_by: float = 0.0
    """How far rounded weights move an output, relative to its norm."""
    failure: str | None = None
    """The largest error, in words; null if the build passes all cases."""


@dataclass(frozen=True, slots=True)
class _DrawnResult:
    """What comparing the cases of a batch that a model is made for showed, and edges near it."""

    drawn: Sequence[Case]
    known: Sequence[ReferenceAnswer]
    """What the reference computes for these, then for special cases."""
    expected: Expected
    judge: CaseJudge
    checked: tuple[CheckedCase, ...]
    warnings: list[str]
    report: ReportDone
    """Takes how many cases of the batch are compared."""


@dataclass(frozen=True, slots=True)
class _Checker:
    """Compares batch after batch."""

    model: ContainedBuild
    imported: Path
    work: Path
    oracle: Oracle
    source: CaseSource
    options: Verify
    promises: OutputPromises
    rounding: Rounding | None = None

    @classmethod
    def of(cls, model: ContainedBuild, imported: Path, options: Verify, work: Path) -> Self:
        """Return the checker of a build. Raises as `verify_build` where there is no reference."""
        engines = reference.choose_engines(options.reference, imported)
        plain = Oracle(imported, engines, work)
        rounds = bool(model.rounded or model.short)
        rounding = Rounding.of(model, imported, plain, options, work) if rounds else None
        oracle = rounding.oracle if rounding else plain
        source = CaseSource(model.signature, imported, options)
        promises = ImportedModel.read(imported).promises
        return cls(model, imported, work, oracle, source, options, promises, rounding)

    def checked(self, batch: Batch) -> _BatchResult:
        """Compare all cases of a batch; special ones only where no other one fails."""
        found = self._check_drawn_cases(batch)
        drawn, known, checked, expected = found.drawn, found.known, found.checked, found.expected
        if failure := describe_worst(checked):
            return _BatchResult(checked, (), tuple(found.warnings), expected, failure=failure)
        apart, answers = self._check_special_cases(batch, found)
        pairs = zip(apart, answers, strict=True)
        failure = describe_worst([case for case, of in pairs if found.judge.binds(case, of)])
        special = batch.special
        warnings = found.warnings
        warnings += doubts.list_case_doubts(checked, known, expected, complete=bool(special))
        warnings += doubts.list_reference_doubts(
            (*checked, *apart), [*known[: len(drawn)], *answers]
        )
        by = self.rounding.moved_by(drawn, known) if self.rounding else 0.0
        warnings += doubts.list_crash_doubts(apart)
        return _BatchResult(checked, apart, tuple(warnings), expected, by, failure)

    def compared(self, batch: Batch) -> Iterator[list[tuple[Case, CheckedCase]]]:
        """Yield the cases of a batch that a build has to pass with their results.

        Drawn ones first; then, if they are asked for, special ones.
        """
        found = self._check_drawn_cases(batch)
        yield list(zip(found.drawn, found.checked, strict=True))
        apart, answers = self._check_special_cases(batch, found)
        compared = zip(batch.special, apart, answers, strict=True)
        yield [(case, one) for case, one, answer in compared if found.judge.binds(case, answer)]

    def _check_drawn_cases(self, batch: Batch) -> _DrawnResult:
        drawn = list(batch.drawn)
        known, expected = self.oracle.ask([*drawn, *batch.special])
        check_names([port.name for port in self.model.signature.outputs], expected.outputs)
        warnings = list(self._redraw_non_finite(batch, drawn, known))
        typical = _compute_typical_scales(drawn, known)
        steps = self.promises.rounds_to_steps or (
            self.rounding is not None and self.rounding.inside
        )
        judge = CaseJudge(self.model, self.oracle, self.options, self.promises, typical, steps)
        report = count_steps("inputs compared", len(drawn) + len(batch.special))
        pairs = report_each(report, zip(drawn, known, strict=False))
        checked = self._compare_cases(judge, CaseJudge.checked, expected.engine, pairs)
        return _DrawnResult(drawn, known, expected, judge, checked, warnings, report)

    def _check_special_cases(
        self, batch: Batch, found: _DrawnResult
    ) -> tuple[tuple[CheckedCase, ...], list[ReferenceAnswer]]:
        """Compare the special cases of a batch; return what that showed, and the answers."""
        answers = self._replace_lost_nan(batch.special, found.known[len(found.drawn) :])
        asked = zip(batch.special, answers, strict=True)
        pairs = report_each(found.report, asked, len(found.drawn))
        main = found.expected.engine
        return self._compare_cases(found.judge, CaseJudge.special, main, pairs), answers

    def _replace_lost_nan(
        self, special: Sequence[Case], answers: Sequence[ReferenceAnswer]
    ) -> list[ReferenceAnswer]:
        """Return the answers of special cases, that of `plain` where other references lose NaN."""
        lost = self.promises.needs_strict_nan(self.model.signature.device)
        return [
            self._ask_plain_reference(case) if lost and case.name == NAN else answer
            for case, answer in zip(special, answers, strict=True)
        ]

    def _ask_plain_reference(self, case: Case) -> ReferenceAnswer:
        oracle = Oracle(self.imported, (reference.PLAIN,), self.work)
        try:
            return oracle.ask([case])[0][0]
        except StageError as error:
            answer = ReferenceAnswer()
            answer.refusal = str(error)
            return answer

    def _compare_cases(
        self,
        judge: CaseJudge,
        compare_with: _Compare,
        main: str,
        known: Iterable[tuple[Case, ReferenceAnswer]],
    ) -> tuple[CheckedCase, ...]:
        """Compare cases, with other references where the build has to agree and does not."""
        comparisons = [
            ComparedCase(
                case,
                answer,
                _name_reference(_time_comparison(compare_with, judge, case, answer), answer, main),
            )
            for case, answer in known
        ]
        is_special = compare_with is CaseJudge.special
        binding = [
            one
            for one in comparisons
            if one.answer.engine != reference.PLAIN
            and (not is_special or judge.binds(one.case, one.answer))
        ]
        resolve_disagreements(
            self.oracle,
            binding,
            lambda other, case, answer: _time_comparison(
                compare_with, replace(judge, oracle=other), case, answer
            ),
        )
        return tuple(one.checked for one in comparisons)

    def _redraw_non_finite(
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


def _time_comparison(
    compare_with: _Compare, judge: CaseJudge, case: Case, answer: ReferenceAnswer
) -> CheckedCase:
    """Return a compared case with the time that this took."""
    begin = time.perf_counter()
    checked = compare_with(judge, case, answer)
    return checked.model_copy(update={"seconds": round(time.perf_counter() - begin, 6)})


def _name_reference(checked: CheckedCase, answer: ReferenceAnswer, main: str) -> CheckedCase:
    """Return a compared case with the name of its reference, where that is not the main one."""
    if answer.engine == main or checked.skipped:
        return checked
    return checked.model_copy(update={"reference": answer.engine})


def _compute_typical_scales(
    drawn: Sequence[Case], known: Sequence[ReferenceAnswer]
) -> dict[Hashable, dict[str, float]]:
    found: dict[Hashable, dict[str, float]] = {}
    for case, answer in zip(drawn, known, strict=False):
        if not case.edge:
            scales = found.setdefault(to_size_key(case), {})
            for name, array in answer.items():
                scales[name] = max(compute_rms(array), scales.get(name, 0.0))
    return found
