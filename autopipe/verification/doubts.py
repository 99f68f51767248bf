"""List comparisons that prove nothing, or less than they seem to."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from autopipe.artifacts.verification import CheckedCase
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
