"""Run a build and its reference on the same inputs, and compare every output."""

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
from autopipe.verification.doubts import describe_worst, find_worst
from autopipe.verification.inputs import Case
from autopipe.verification.judge import CaseJudge, to_size_key
from autopipe.verification.oracle import Oracle, ReferenceAnswer
from autopipe.verification.reference import Expected
from autopipe.verification.rounding import Rounding
from autopipe.verification.second_opinion import ComparedCase, resolve_disagreements

_Compare = Callable[[CaseJudge, Case, ReferenceAnswer], CheckedCase]
"""Compares the build with the reference's outputs for a case."""


def verify_build(  # noqa: PLR0913 -- what is compared, with what, and how
    model: ContainedBuild,
    import_artifact: Path,
    options: Verify,
    work: Path,
    real_inputs: Mapping[str, Path] | None = None,
    *,
    watch: Watch | None = None,
    tell_failure: Callable[[Verification], None] = lambda _: None,
) -> Verification:
    """Compare a build with the artifact of *import* that it was built from, on every case.

    `real_inputs` maps the names of cases to files. `work` holds inputs and expected outputs; the
    caller empties it. `watch` counts the inputs, or the sizes where there are several. A build
    with bfloat16 weights is compared with the model that has the same weights. `tell_failure`
    receives the results up to and including the first batch that fails. Raises WrongBuildError
    where numbers, shapes or dtypes differ, GateError where names do, ModelError where the model
    itself cannot run at a size in its range, SetupError where no reference is installed,
    ConfigError for real inputs that do not fit.
    """
    checker = _Checker.of(model, import_artifact, options, work)
    batches = checker.source.batches(real_inputs or {})
    results = []
    for batch_result in _count_batches(map(checker.checked, batches), checker.source, watch):
        results.append(batch_result)
        if batch_result.failure is not None:
            break
    result = _summarize_batches(results, rounded=checker.rounding is not None)
    if result.failure is not None:
        tell_failure(result)
        raise WrongBuildError(result.failure)
    return result


def _summarize_batches(results: "Sequence[_BatchResult]", *, rounded: bool) -> Verification:
    """Join the results of all batches."""
    expected = results[0].expected
    warnings = Counter(warning for one in results for warning in one.warnings)
    return Verification(
        reference=expected.engine,
        reference_version=expected.version,
        cases=tuple(case for one in results for case in one.cases),
        special=tuple(case for one in results for case in one.special),
        warnings=(
            *expected.refusals,
            *(f"{text} (at {n} sizes)" if n > 1 else text for text, n in warnings.items()),
        ),
        rounded_by=max(one.rounded_by for one in results) if rounded else None,
        failure=results[-1].failure,
    )


def find_wrong_case(  # noqa: PLR0913 -- what is compared, with what, and how
    model: ContainedBuild,
    import_artifact: Path,
    options: Verify,
    work: Path,
    real_inputs: Mapping[str, Path] | None = None,
    *,
    name: str | None = None,
) -> tuple[Case, CheckedCase]:
    """Return the failing case with the largest error, or the case nearest to its tolerance.

    With a `name`, only cases of that name count; ConfigError where there is none. Raises as
    `verify_build`, but not WrongBuildError.
    """
    checker = _Checker.of(model, import_artifact, options, work)
    if name is not None:
        checker.source.find_case(real_inputs or {}, name)
    nearest: tuple[Case, CheckedCase] | None = None
    for batch in checker.source.batches(real_inputs or {}):
        part = batch if name is None else _select_by_name(batch, name)
        for group in checker.compared(part) if part else ():
            candidates = [pair for pair in group if name in {None, pair[0].name}]
            worst = find_worst([checked for _, checked in candidates])
            if worst is not None:
                return next(pair for pair in candidates if pair[1] is worst)
            nearest = max(
                [*([nearest] if nearest else []), *candidates], key=_rate_error, default=None
            )
    if nearest is None:
        raise ConfigError(f"case {name!r} is not compared: the model promises nothing of it")
    return nearest


def _rate_error(pair: tuple[Case, CheckedCase]) -> float:
    """Return the largest ratio of error to tolerance among the outputs of a case."""
    return max((output.used or 0.0 for output in pair[1].outputs), default=0.0)


def _select_by_name(batch: Batch, name: str) -> Batch | None:
    """Select the cases with a name, and the first, which sets the magnitudes; None if no match."""
    drawn_cases = [one for at, one in enumerate(batch.drawn) if at == 0 or one.name == name]
    special = [one for one in batch.special if one.name == name]
    has_match = special or drawn_cases[1:] or drawn_cases[0].name == name
    return Batch(drawn_cases, special, batch.real) if has_match else None


def _count_batches(
    results: Iterable["_BatchResult"], source: CaseSource, watch: Watch | None
) -> Iterator["_BatchResult"]:
    """Yield the result of each batch while counting sizes, or inputs if there is one size."""
    sizes = source.count_sizes()
    if watch is not None and sizes == 1:
        with count_with(watch.count):
            yield from results
        return
    tell = watch.count("sizes compared", sizes) if watch else None
    compared_sizes: set[str] = set()
    for result in results:
        compared_sizes.update(str(case.sizes) for case in result.cases)
        if tell is not None:
            tell(len(compared_sizes))
        yield result


@dataclass(frozen=True, slots=True)
class _BatchResult:
    """The result of comparing the cases of a batch."""

    cases: tuple[CheckedCase, ...]
    special: tuple[CheckedCase, ...]
    warnings: tuple[str, ...]
    expected: Expected
    rounded_by: float = 0.0
    """Change of an output due to bfloat16 weights, relative to its norm."""
    failure: str | None = None
    """Description of the largest error; None if the build passes all cases."""


@dataclass(frozen=True, slots=True)
class _DrawnResult:
    """The result of comparing the typical inputs of a batch, and the edge cases near them."""

    drawn: Sequence[Case]
    known: Sequence[ReferenceAnswer]
    """The reference's outputs for these, then for special cases."""
    expected: Expected
    judge: CaseJudge
    checked: tuple[CheckedCase, ...]
    warnings: list[str]
    report: ReportDone
    """Receives the number of cases of the batch that were compared."""


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
    def of(cls, model: ContainedBuild, import_artifact: Path, options: Verify, work: Path) -> Self:
        """Create the checker of a build. Raises as `verify_build` where there is no reference."""
        engines = reference.choose_engines(options.reference, import_artifact)
        plain = Oracle(import_artifact, engines, work)
        rounds = bool(model.rounded or model.short)
        rounding = Rounding.of(model, import_artifact, plain, options, work) if rounds else None
        oracle = rounding.oracle if rounding else plain
        source = CaseSource(model.signature, import_artifact, options)
        promises = ImportedModel.read(import_artifact).promises
        return cls(model, import_artifact, work, oracle, source, options, promises, rounding)

    def checked(self, batch: Batch) -> _BatchResult:
        """Compare all cases of a batch; special cases only if all others pass."""
        result = self._check_drawn_cases(batch)
        checked, answers, warnings = result.checked, result.known, result.warnings
        if failure := describe_worst(checked):
            return _BatchResult(checked, (), tuple(warnings), result.expected, failure=failure)
        special, special_answers = self._check_special_cases(batch, result)
        pairs = zip(special, special_answers, strict=True)
        failure = describe_worst([case for case, of in pairs if result.judge.binds(case, of)])
        complete = bool(batch.special)
        warnings += doubts.list_case_doubts(checked, answers, result.expected, complete=complete)
        warnings += doubts.list_reference_doubts(
            (*checked, *special), [*answers[: len(result.drawn)], *special_answers]
        )
        by = self.rounding.moved_by(result.drawn, answers) if self.rounding else 0.0
        warnings += doubts.list_crash_doubts(special)
        return _BatchResult(checked, special, tuple(warnings), result.expected, by, failure)

    def compared(self, batch: Batch) -> Iterator[list[tuple[Case, CheckedCase]]]:
        """Yield the binding cases of a batch with their results.

        Drawn cases first; then, if the caller continues, special cases.
        """
        result = self._check_drawn_cases(batch)
        yield list(zip(result.drawn, result.checked, strict=True))
        special, answers = self._check_special_cases(batch, result)
        triples = zip(batch.special, special, answers, strict=True)
        yield [(case, one) for case, one, answer in triples if result.judge.binds(case, answer)]

    def _check_drawn_cases(self, batch: Batch) -> _DrawnResult:
        drawn_cases = list(batch.drawn)
        answers, expected = self.oracle.ask([*drawn_cases, *batch.special])
        check_names([port.name for port in self.model.signature.outputs], expected.outputs)
        warnings = list(self._redraw_non_finite(batch, drawn_cases, answers))
        typical = _compute_typical_scales(drawn_cases, answers)
        steps = self.promises.rounds_to_steps or (
            self.rounding is not None and self.rounding.inside
        )
        judge = CaseJudge(self.model, self.oracle, self.options, self.promises, typical, steps)
        report = count_steps("inputs compared", len(drawn_cases) + len(batch.special))
        pairs = report_each(report, zip(drawn_cases, answers, strict=False))
        checked_cases = self._compare_cases(judge, CaseJudge.checked, expected.engine, pairs)
        return _DrawnResult(drawn_cases, answers, expected, judge, checked_cases, warnings, report)

    def _check_special_cases(
        self, batch: Batch, result: _DrawnResult
    ) -> tuple[tuple[CheckedCase, ...], list[ReferenceAnswer]]:
        """Compare the special cases of a batch; return the results and the reference's answers."""
        answers = self._replace_lost_nan(batch.special, result.known[len(result.drawn) :])
        case_answers = zip(batch.special, answers, strict=True)
        pairs = report_each(result.report, case_answers, len(result.drawn))
        main = result.expected.engine
        return self._compare_cases(result.judge, CaseJudge.special, main, pairs), answers

    def _replace_lost_nan(
        self, special: Sequence[Case], answers: Sequence[ReferenceAnswer]
    ) -> list[ReferenceAnswer]:
        """Replace the answer for NaN by that of `plain` where other references lose NaN."""
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
        case_answers: Iterable[tuple[Case, ReferenceAnswer]],
    ) -> tuple[CheckedCase, ...]:
        """Compare cases, and those that fail although they bind with other references, too."""
        comparisons = [
            ComparedCase(
                case,
                answer,
                _name_reference(_time_comparison(compare_with, judge, case, answer), answer, main),
            )
            for case, answer in case_answers
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
        self, batch: Batch, drawn_cases: list[Case], answers: list[ReferenceAnswer]
    ) -> Iterator[str]:
        """Replace inputs on which the reference is not finite."""
        for place, case in enumerate(batch.drawn):
            if case.edge or case.name in batch.real:
                continue
            new_cases = self.source.redrawn(case, place)
            if better := self.oracle.better(new_cases, answers[place]):
                new_case, answers[place] = better
                drawn_cases[place] = replace(case, arrays=new_case.arrays)
                why = "on others the reference is not finite"
                yield f"case {case.name!r} has numbers {new_case.name}: {why}"


def _time_comparison(
    compare_with: _Compare, judge: CaseJudge, case: Case, answer: ReferenceAnswer
) -> CheckedCase:
    """Compare a case, and record the time that it took."""
    begin = time.perf_counter()
    checked_case = compare_with(judge, case, answer)
    return checked_case.model_copy(update={"seconds": round(time.perf_counter() - begin, 6)})


def _name_reference(checked_case: CheckedCase, answer: ReferenceAnswer, main: str) -> CheckedCase:
    """Record the reference of a compared case if it is not the main one."""
    if answer.engine == main or checked_case.skipped:
        return checked_case
    return checked_case.model_copy(update={"reference": answer.engine})


def _compute_typical_scales(
    drawn_cases: Sequence[Case], answers: Sequence[ReferenceAnswer]
) -> dict[Hashable, dict[str, float]]:
    scales_by_size: dict[Hashable, dict[str, float]] = {}
    for case, answer in zip(drawn_cases, answers, strict=False):
        if not case.edge:
            scales = scales_by_size.setdefault(to_size_key(case), {})
            for name, array in answer.items():
                scales[name] = max(compute_rms(array), scales.get(name, 0.0))
    return scales_by_size
