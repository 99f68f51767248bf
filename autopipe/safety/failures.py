"""Register of crashes, timeouts, memory overruns and exceptions: quarantine, warn, list."""

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
"""Effect of a failure: the next engine of the task's chain, or the end of the run."""


class KnownFailure(Failed):
    """Work that failed in earlier runs, and was not tried."""

    def __init__(self, former: Former) -> None:
        """Store how it ended there."""
        description = f"{former.how} (known from {former.runs} earlier runs)"
        super().__init__(Failure(How.KNOWN, description))
        self.folder = former.folder


@dataclass(slots=True)
class Failures:
    """The register of the failures of one run of a stage."""

    place: Quarantine
    conditions: Conditions
    warn: Callable[[str], None]
    fatal: bool = False
    """Whether the first one ends the run."""
    listed: dict[str, list[ListedFailure]] = field(default_factory=dict)
    """By the name of the task, as reports show them; folders are relative to the tuning records."""
    hopeless: Hopeless | None = None
    """The failures of earlier runs; None without such a register."""
    again: bool = False
    """Whether to retry work that failed in earlier runs."""
    stage: str = ""

    @classmethod
    def of(cls, ctx: Context, conditions: Conditions, stage: str, mode: OnFailure) -> Self:
        """Return an empty register for a stage."""
        folder = ctx.records.parent
        folder.mkdir(parents=True, exist_ok=True)
        return cls(
            Quarantine(folder / "failed", ctx.facts[Facet.TARGET]), conditions,
            lambda text: ctx.emit(Warn(stage=stage, message=text)), mode == "fail",
            hopeless=Hopeless(folder / "hopeless", ctx.facts, conditions.fast_algorithms),
            again=ctx.forced, stage=stage,
        )  # fmt: skip

    def add(self, piece: Piece, error: Failed, *, remembered: bool = True) -> str:
        """Quarantine a piece that failed twice, or in another run; return its folder.

        With `remembered`, it is recorded for later runs. Raises StageError if it ends the run.
        """
        folder = str(self.place.failed(piece, error, self.conditions))
        runs = 1
        if self.hopeless is not None and remembered:
            runs = self.hopeless.add(piece, str(error), folder)
        often = "twice" if runs == 1 else f"in {runs} runs"
        self._report_failure(
            piece, str(error), folder, f"failed {often}: {error}",
            f"it was put aside, python {folder}/reproduce.py shows it",
        )  # fmt: skip
        return folder

    def suspect(self, piece: Piece) -> bool:
        """Return whether a piece of work failed in an earlier run, so that one attempt is enough.

        Raises KnownFailure if it failed in enough runs, and StageError if that ends the run.
        """
        former = None if self.again or self.hopeless is None else self.hopeless.recall(piece)
        if former is None or not former.final:
            return former is not None
        failure = KnownFailure(former)
        self._report_failure(
            piece, str(failure), former.folder,
            f"failed in {former.runs} earlier runs: {former.how}",
            f"it was not tried, --force {self.stage} does",
        )  # fmt: skip
        raise failure

    def passed(self, piece: Piece) -> None:
        """Record that a piece of work succeeded."""
        if self.hopeless is not None:
            self.hopeless.forget(piece)

    def format_count(self) -> str:
        """Format the number of failures for a summary."""
        count = sum(map(len, self.listed.values()))
        return f"; {count} failures put aside" if count else ""

    def _report_failure(
        self, piece: Piece, how: str, folder: str, event: str, consequence: str
    ) -> None:
        failure = ListedFailure(
            engine=piece.engine, implementation=piece.implementation, doing=piece.doing, how=how,
            retried=True, folder=f"failed/{Path(folder).name}",
        )  # fmt: skip
        self.listed.setdefault(piece.task, []).append(failure)
        text = f"task {piece.task}: {piece.doing} {piece.origin} {event}"
        if self.fatal:
            raise StageError(
                f"{text}; python {folder}/reproduce.py shows it; tasks.on_task_failure: fallback"
                " goes on without it"
            )
        self.warn(f"{text}; {consequence}")
