"""Compare a build that differs from the first reference with the other ones.

A reference may be wrong: onnxruntime's optimizer has refused and changed valid models, its kernels
deviate from ONNX at places, and onnx's evaluator at others. So a build fails where no reference
agrees with it. Where references contradict each other and none agrees, the unscheduled loops of
the imported model decide, which have no schedule, layout or fusion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autopipe.artifacts.verification import CaseOutcome, CheckedCase
from autopipe.verification.compare import compare_outputs, compute_rms, compute_tolerance
from autopipe.verification.inputs import Case
from autopipe.verification.oracle import Oracle, ReferenceAnswer

Compare = Callable[[Oracle, Case, ReferenceAnswer], CheckedCase]
"""Compares the build with an oracle's outputs for a case."""


@dataclass(slots=True)
class ComparedCase:
    """The comparison of a build on a case, and the reference's answer."""

    case: Case
    answer: ReferenceAnswer
    checked: CheckedCase
    contradicted: bool = False
    """Whether another reference contradicts this answer."""

    @property
    def failed(self) -> bool:
        """Whether the build differs without a crash, so that other references may decide."""
        return self.checked.outcome == CaseOutcome.FAILED and not self.checked.crashed


def resolve_disagreements(
    oracle: Oracle, comparisons: Sequence[ComparedCase], again: Compare
) -> None:
    """Compare failed cases with the other references; a build has to agree with one of them.

    `oracle` has all references, `again` compares with one of them.
    """
    for other_oracle in oracle.others():
        _ask_reference(other_oracle, [one for one in comparisons if one.failed], again)
    disputed_cases = [one for one in comparisons if one.failed and one.contradicted]
    _ask_reference(oracle.plain(), disputed_cases, again)


def _ask_reference(
    other_oracle: Oracle, comparisons: Sequence[ComparedCase], again: Compare
) -> None:
    waiting = [one for one in comparisons if one.answer.engine not in other_oracle.engines]
    if not waiting:
        return
    answers = other_oracle.opinions([one.case for one in waiting])
    for comparison, answer in zip(waiting, answers, strict=True):
        if answer is None or answer.keys() != comparison.answer.keys():
            continue
        checked_case = again(other_oracle, comparison.case, answer)
        if checked_case.outcome == CaseOutcome.PASSED:
            comparison.checked = checked_case.model_copy(update={"reference": answer.engine})
        comparison.contradicted |= _is_contradiction(comparison.answer, answer)


def _is_contradiction(first_answer: ReferenceAnswer, second_answer: ReferenceAnswer) -> bool:
    """Whether two references differ by more than rounding."""
    return any(
        compare_outputs(
            name, second_answer[name], array,
            compute_tolerance(array.dtype, compute_rms(array), None, None, edge=True),
        ).failure
        for name, array in first_answer.items()
    )  # fmt: skip
