"""List comparisons that prove nothing, or less than they seem to, and describe the worst one."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from autopipe.artifacts.verification import CheckedCase, OutputComparison
from autopipe.verification.compare import explain_constant_output
from autopipe.verification.oracle import ReferenceAnswer
from autopipe.verification.reference import Expected


def list_case_doubts(
    checked_cases: Sequence[CheckedCase],
    answers: Sequence[ReferenceAnswer],
    expected: Expected,
    *,
    complete: bool,
) -> Iterator[str]:
    """Yield the inconclusive comparisons of a batch; `complete`: several cases of each size."""
    for case, answer in zip(checked_cases, answers, strict=False):
        if case.skipped:
            why = f": {answer.refusal}" if answer.refusal else " is not finite on it"
            yield f"case {case.name!r} is skipped: the reference{why}"
        row_counts = {output.elsewhere for output in case.outputs if output.elsewhere}
        if row_counts:
            why = "as many of the reference's own are with inputs moved by a hair"
            yield f"{case.label}: {max(row_counts)} rows are others, or in another order; {why}"
        yield from _list_noisy_outputs(case)
    compared_answers = [
        answer for case, answer in zip(checked_cases, answers, strict=False) if not case.skipped
    ]
    for name in expected.outputs if complete else ():
        reason = explain_constant_output(answer[name] for answer in compared_answers)
        if reason:
            yield f"output {name!r} of the reference {reason}: comparing it proves nothing"


def list_crash_doubts(special: Sequence[CheckedCase]) -> Iterator[str]:
    """Yield the special cases that crash a build."""
    for case in special:
        if case.crashed:
            yield f"case {case.name!r}: {case.outputs[0].failure}; never give it such numbers"


def list_reference_doubts(
    checked_cases: Sequence[CheckedCase], answers: Sequence[ReferenceAnswer]
) -> Iterator[str]:
    """Yield the references that contradict each other, and the one that agrees with the build."""
    cases_by_engines = defaultdict[tuple[str, str], list[str]](list)
    for case, answer in zip(checked_cases, answers, strict=True):
        if case.reference not in {None, answer.engine}:
            cases_by_engines[answer.engine, str(case.reference)].append(repr(case.name))
    for (first, second), names in cases_by_engines.items():
        agrees = f"{second} computes what the build does"
        yield f"the reference {first} differs on {', '.join(names)}: {agrees}"


def _list_noisy_outputs(case: CheckedCase) -> Iterator[str]:
    """Yield the outputs of an edge case that are noise."""
    for output in case.outputs:
        if output.undetermined:
            yield (
                f"{case.label}: output {output.output!r} is noise, and has only to be as large: "
                f"inputs a rounding away move the reference by {output.undetermined:.2g} of itself"
            )


def find_worst(checked_cases: Sequence[CheckedCase]) -> CheckedCase | None:
    """Return the failed case with the largest error, or None."""
    failures = _list_failures(checked_cases)
    return max(failures, key=_read_absolute_error)[0] if failures else None


def describe_worst(checked_cases: Sequence[CheckedCase]) -> str | None:
    """Describe the largest error of the failed cases; None if all pass."""
    failures = _list_failures(checked_cases)
    if not failures:
        return None
    case, worst = max(failures, key=_read_absolute_error)
    message = f"output {worst.output!r} is wrong on {case.label}: {worst.failure}"
    if worst.max_abs is not None:
        message += f"; largest error {worst.max_abs:.3g}"
        message += f" ({worst.max_rel:.3g} relative)" if worst.max_rel is not None else ""
        message += f", allowed rtol {worst.tolerance.rtol:.3g} and atol {worst.tolerance.atol:.3g}"
    if len(failures) > 1:
        message += f"; {len(failures)} comparisons fail in all"
    return f"{message}; {_suggest_tolerance([output for _, output in failures])}"


def _list_failures(checked: Sequence[CheckedCase]) -> list[tuple[CheckedCase, OutputComparison]]:
    return [(case, output) for case in checked for output in case.outputs if output.failure]


def _read_absolute_error(failure: tuple[CheckedCase, OutputComparison]) -> float:
    return failure[1].max_abs or np.inf


def _suggest_tolerance(failed_outputs: Sequence[OutputComparison]) -> str:
    """Suggest the one setting with which all outputs would pass."""
    settings = []
    for name, values in (
        ("atol", [output.enough_atol for output in failed_outputs]),
        ("rtol", [output.enough_rtol for output in failed_outputs]),
    ):
        enough = [value for value in values if value is not None]
        if len(enough) == len(values):
            settings.append(f"verify.{name}: {max(enough):g}")
    return f"{' or '.join(settings)} would pass" if settings else "no tolerance would pass"
