"""What of a comparison proves nothing, or less than it seems to."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from autopipe.artifacts.verification import CheckedCase
from autopipe.verification.compare import explain_constant_output
from autopipe.verification.oracle import ReferenceAnswer
from autopipe.verification.reference import Expected


def list_case_doubts(
    checked: Sequence[CheckedCase],
    known: Sequence[ReferenceAnswer],
    expected: Expected,
    *,
    complete: bool,
) -> Iterator[str]:
    """Yield what of a batch proves nothing; a `complete` one has several cases of each size."""
    for case, answer in zip(checked, known, strict=False):
        if case.skipped:
            why = f": {answer.refusal}" if answer.refusal else " is not finite on it"
            yield f"case {case.name!r} is skipped: the reference{why}"
        told = {output.elsewhere for output in case.outputs if output.elsewhere}
        if told:
            why = "as many of the reference's own are with inputs moved by a hair"
            yield f"{case.told}: {max(told)} rows are others, or in another order; {why}"
        yield from _list_noisy_outputs(case)
    kept = [answer for case, answer in zip(checked, known, strict=False) if not case.skipped]
    for name in expected.outputs if complete else ():
        reason = explain_constant_output(answer[name] for answer in kept)
        if reason:
            yield f"output {name!r} of the reference {reason}: comparing it proves nothing"


def list_crash_doubts(special: Sequence[CheckedCase]) -> Iterator[str]:
    """Yield which special cases a build did not survive."""
    for case in special:
        if case.crashed:
            yield f"case {case.name!r}: {case.outputs[0].failure}; never give it such numbers"


def list_reference_doubts(
    checked: Sequence[CheckedCase], known: Sequence[ReferenceAnswer]
) -> Iterator[str]:
    """Yield which references contradict each other, and with which one the build agrees."""
    found = defaultdict[tuple[str, str], list[str]](list)
    for case, answer in zip(checked, known, strict=True):
        if case.reference not in {None, answer.engine}:
            found[answer.engine, str(case.reference)].append(repr(case.name))
    for (first, other), names in found.items():
        agrees = f"{other} computes what the build does"
        yield f"the reference {first} differs on {', '.join(names)}: {agrees}"


def _list_noisy_outputs(case: CheckedCase) -> Iterator[str]:
    """Yield which outputs of an edge case tell next to nothing."""
    for output in case.outputs:
        if output.undetermined:
            yield (
                f"{case.told}: output {output.output!r} is noise, and has only to be as large: "
                f"inputs a rounding away move the reference by {output.undetermined:.2g} of itself"
            )
