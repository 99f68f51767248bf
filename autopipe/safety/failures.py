"""What crashed, hung, took too much memory or raised something: put aside, told and listed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from autopipe.artifacts.tuning import ListedFailure
from autopipe.environment.facet import Facet
from autopipe.errors import StageError
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context
from autopipe.processes.contained import Failed
from autopipe.processes.failure import Failure, How
from autopipe.safety.job import Piece
from autopipe.safety.known_failures import Former, Hopeless
from autopipe.safety.quarantine import Quarantine
from autopipe.schedules.conditions import Conditions

OnFailure = Literal["fallback", "fail"]
"""What a failure ends in: the next in the task's chain, or the end of the run."""


class KnownFailure(Failed):
    """Work failed in earlier runs, and was not tried."""

    def __init__(self, former: Former) -> None:
        """Take how it ended there."""
        known = f"{former.how} (known from {former.runs} earlier runs)"
        super().__init__(Failure(How.KNOWN, known))
        self.folder = former.folder


@dataclass(slots=True)
class Failures:
    """The register of what failed in one run of a stage."""

    place: Quarantine
    conditions: Conditions
    warn: Callable[[str], None]
    fatal: bool = False
    """Whether the first one ends the run."""
    listed: dict[str, list[ListedFailure]] = field(default_factory=dict)
    """By the name of the task, as reports show them; folders are relative to the tuning records."""
    hopeless: Hopeless | None = None
    """What failed in earlier runs; null where that is not kept."""
    again: bool = False
    """Whether to try all that is hopeless as if it were new."""
    stage: str = ""

    @classmethod
    def of(cls, ctx: Context, conditions: Conditions, stage: str, mode: OnFailure) -> Self:
        """Return the failures of a stage, none so far."""
        folder = ctx.records.parent
        folder.mkdir(parents=True, exist_ok=True)
        return cls(
            Quarantine(folder / "failed", ctx.facts[Facet.TARGET]), conditions,
            lambda text: ctx.emit(Warn(stage=stage, message=text)), mode == "fail",
            hopeless=Hopeless(folder / "hopeless", ctx.facts, conditions.fast_algorithms),
            again=ctx.forced, stage=stage,
        )  # fmt: skip

    def add(self, piece: Piece, error: Failed, *, remembered: bool = True) -> str:
        """Put aside what failed twice, or in another run, and return its folder.

        Later runs know of it if it is to be `remembered`. Raises StageError if it ends the run.
        """
        kept = str(self.place.failed(piece, error, self.conditions))
        runs = 1
        if self.hopeless is not None and remembered:
            runs = self.hopeless.add(piece, str(error), kept)
        often = "twice" if runs == 1 else f"in {runs} runs"
        self._report_failure(
            piece, str(error), kept, f"failed {often}: {error}",
            f"it was put aside, python {kept}/reproduce.py shows it",
        )  # fmt: skip
        return kept

    def suspect(self, piece: Piece) -> bool:
        """Return whether a piece of work failed in an earlier run, so that one attempt is enough.

        Raises Known where none is worth it, and StageError if that ends the run.
        """
        former = None if self.again or self.hopeless is None else self.hopeless.recall(piece)
        if former is None or not former.final:
            return former is not None
        known = KnownFailure(former)
        self._report_failure(
            piece, str(known), former.folder,
            f"failed in {former.runs} earlier runs: {former.how}",
            f"it was not tried, --force {self.stage} does",
        )  # fmt: skip
        raise known

    def passed(self, piece: Piece) -> None:
        """Take note of work that went well."""
        if self.hopeless is not None:
            self.hopeless.forget(piece)

    def told(self) -> str:
        """Return what a summary says of them."""
        count = sum(map(len, self.listed.values()))
        return f"; {count} failures put aside" if count else ""

    def _report_failure(self, piece: Piece, how: str, folder: str, what: str, then: str) -> None:
        failure = ListedFailure(
            engine=piece.engine, implementation=piece.implementation, doing=piece.doing, how=how,
            retried=True, folder=f"failed/{Path(folder).name}",
        )  # fmt: skip
        self.listed.setdefault(piece.task, []).append(failure)
        text = f"task {piece.task}: {piece.doing} {piece.who} {what}"
        if self.fatal:
            raise StageError(
                f"{text}; python {folder}/reproduce.py shows it; tasks.on_task_failure: fallback"
                " goes on without it"
            )
        self.warn(f"{text}; {then}")
