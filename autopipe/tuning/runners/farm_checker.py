"""Checks of schedules by the workers of a farm, for targets that this machine is none of."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from autopipe.errors import AutopipeError, TargetError
from autopipe.farm.wire import Do, WorkAnswer
from autopipe.processes.contained import Failed
from autopipe.processes.failure import Failure, How
from autopipe.safety.checking import Outcome
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked

AskWorkers = Callable[[Sequence[Piece], Do], list[WorkAnswer | str]]
"""Returns the answer of a worker to each piece, or why no worker could give one."""


class FarmChecker:
    """Checks each schedule against its plain loops on a worker of the farm."""

    def __init__(self, ask: AskWorkers) -> None:
        self._ask = ask

    def check(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """Return the outcome of the check of each piece."""
        return [_read_outcome(answer) for answer in self._ask(pieces, "check")]

    def plain_runs(self, piece: Piece) -> bool:
        """Tell whether the plain loops of a piece can be run, and agree with themselves."""
        (answer,) = self._ask([piece], "loops")
        outcomes = None if isinstance(answer, str) else answer.checked
        return outcomes is not None and outcomes.get("plain_runs") is True


def check_answer(answer: WorkAnswer | str) -> WorkAnswer | str:
    """Return an answer. Raises TargetError where the worker refuses the whole pipeline."""
    if isinstance(answer, WorkAnswer) and answer.refused is not None:
        raise TargetError(f"the workers refuse this pipeline: {answer.refused}")
    return answer


def _read_outcome(answer: WorkAnswer | str) -> Outcome:
    """Read the outcome of a check from an answer; a failure where it has none."""
    if isinstance(answer, str):
        return Failed(Failure(How.RAISED, f"no worker could do it: {answer}"))
    outcomes = answer.checked or {}
    with suppress(ValueError, TypeError, LookupError, AutopipeError):
        if "found" in outcomes:
            return Checked.of(outcomes["found"])
    return Failed(Failure(How.RAISED, str(outcomes.get("failed", "an answer without a verdict"))))
