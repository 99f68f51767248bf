"""Asks other references where a build differs from the first one.

A reference may be wrong: onnxruntime's optimizer has refused and changed valid models, its kernels
differ from ONNX at places, and so does onnx's evaluator at others. So a build fails where no
reference agrees with it. Where references contradict each other and none agrees, the plain loops
of the imported model decide, which know no schedule, layout or fusion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autopipe.artifacts.verification import CaseOutcome, CheckedCase
from autopipe.verification.compare import compare_outputs, compute_rms, compute_tolerance
from autopipe.verification.inputs import Case
from autopipe.verification.oracle import Oracle, ReferenceAnswer

Compare = Callable[[Oracle, Case, ReferenceAnswer], CheckedCase]
"""Compares the build with what an oracle answered to a case."""


@dataclass(slots=True)
class ComparedCase:
    """A build on a case, and what the reference answered."""

    case: Case
    answer: ReferenceAnswer
    checked: CheckedCase
    contradicted: bool = False
    """Whether another reference answers something else."""

    @property
    def failed(self) -> bool:
        """Whether the build differs, and lived to be compared with another reference."""
        return self.checked.outcome == CaseOutcome.FAILED and not self.checked.crashed


def resolve_disagreements(
    oracle: Oracle, comparisons: Sequence[ComparedCase], again: Compare
) -> None:
    """Compare what differs with the other references; a build has to agree with one of them.

    `oracle` has all references, `again` compares with one of them.
    """
    for other in oracle.others():
        _ask_reference(other, [one for one in comparisons if one.failed], again)
    contradicted = [one for one in comparisons if one.failed and one.contradicted]
    _ask_reference(oracle.plain(), contradicted, again)


def _ask_reference(other: Oracle, comparisons: Sequence[ComparedCase], again: Compare) -> None:
    waiting = [one for one in comparisons if one.answer.engine not in other.engines]
    if not waiting:
        return
    answers = other.opinions([one.case for one in waiting])
    for one, answer in zip(waiting, answers, strict=True):
        if answer is None or answer.keys() != one.answer.keys():
            continue
        checked = again(other, one.case, answer)
        if checked.outcome == CaseOutcome.PASSED:
            one.checked = checked.model_copy(update={"reference": answer.engine})
        one.contradicted |= _is_contradiction(one.answer, answer)


def _is_contradiction(one: ReferenceAnswer, other: ReferenceAnswer) -> bool:
    """Tell whether two references contradict each other, by more than rounding."""
    return any(
        compare_outputs(
            name, other[name], array,
            compute_tolerance(array.dtype, compute_rms(array), None, None, edge=True),
        ).failure
        for name, array in one.items()
    )  # fmt: skip
