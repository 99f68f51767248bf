"""Checks of schedules by the workers of a farm, for targets that this machine is none of."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from autopipe.errors import AutopipeError, TargetError
from autopipe.farm.wire import WorkAnswer
from autopipe.processes.contained import Failed
from autopipe.processes.failure import Failure, How
from autopipe.safety.checking import Outcome
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked, Finding
from autopipe.tuning.runners.opinions import Doubts

_CERTAIN: Final = frozenset({Finding.RIGHT, Finding.WRONG})
"""Findings on which equal machines do not differ."""


class AsksWorkers(Protocol):
    """Has workers of a farm check schedules."""

    doubts: Doubts
    """Who is not believed any more."""

    def check(self, piece: Piece, *, loops: bool = False) -> Mapping[str, WorkAnswer]:
        """Return what two have found, or three where these disagree, by their names."""

    @property
    def workers(self) -> int:
        """How many are there."""


class FarmChecker:
    """Has two workers check each schedule, and a third where they disagree."""

    def __init__(self, runner: AsksWorkers) -> None:
        self._runner = runner

    def check(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """Return what came of the check of each piece."""
        return [self._judged(self._runner.check(piece)) for piece in pieces]

    @property
    def alone(self) -> bool:
        """Whether a verdict is one worker's word, and not to be remembered."""
        return self._runner.workers < 2  # noqa: PLR2004 -- one and another

    def _judged(self, said: Mapping[str, WorkAnswer]) -> Outcome:
        """Return what most have found; what condemns it where as many say either."""
        if not said:
            return Failed(Failure(How.RAISED, "no worker could do it"))
        outcomes = {name: _outcome(answer) for name, answer in said.items()}
        kinds = Counter(map(_kind, outcomes.values()))
        most = max(kinds, key=lambda kind: (kinds[kind], kind != Finding.RIGHT))
        if kinds[most] > 1 and most in _CERTAIN:
            for name, outcome in outcomes.items():
                if _kind(outcome) in _CERTAIN - {most}:
                    self._runner.doubts.add(name, "two others say that its verdict is not true")
        return next(outcome for outcome in outcomes.values() if _kind(outcome) == most)

    def plain_runs(self, piece: Piece) -> bool:
        """Tell whether the plain loops of a piece can be run, and agree with themselves."""
        said = self._runner.check(piece, loops=True).values()
        return any(found.checked and found.checked.get("plain_runs") is True for found in said)


def accepted(answer: WorkAnswer) -> WorkAnswer:
    """Return an answer. Raises TargetError where it refuses."""
    if answer.refused is not None:
        raise TargetError(f"the workers refuse this pipeline: {answer.refused}")
    return answer


def same(said: Mapping[str, WorkAnswer]) -> bool:
    """Tell whether all have found the same of a schedule."""
    return len({str(_kind(_outcome(answer))) for answer in said.values()}) < 2  # noqa: PLR2004


def _kind(outcome: Outcome) -> Finding:
    return outcome.finding if isinstance(outcome, Checked) else Finding.FAILED


def _outcome(answer: WorkAnswer) -> Outcome:
    """Return what came of a check."""
    found: Mapping[str, Any] = answer.checked or {}
    with suppress(ValueError, TypeError, LookupError, AutopipeError):
        if "found" in found:
            return Checked.of(found["found"])
    text = found.get("failed", "an answer of no kind")
    return Failed(Failure(How.RAISED, str(text)))
