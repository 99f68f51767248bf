"""What crashed, hung, took too much memory or raised something: put aside, told and listed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

from autopipe.errors import StageError
from autopipe.pipeline.contained import Failed
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Facet
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.pieces import Piece
from autopipe.schedules.quarantine import Quarantine

OnFailure = Literal["fallback", "fail"]
"""What a failure ends in: the next in the task's chain, or the end of the run."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures of one run of a stage."""

    place: Quarantine
    conditions: Conditions
    warn: Callable[[str], None]
    fatal: bool = False
    """Whether the first one ends the run."""
    listed: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    """By the name of the task, as reports show them."""

    @classmethod
    def of(cls, ctx: Context, conditions: Conditions, stage: str, mode: OnFailure) -> Self:
        """Return the failures of a stage, none so far."""
        folder = ctx.records.parent
        folder.mkdir(parents=True, exist_ok=True)
        return cls(
            Quarantine(folder / "failed", ctx.facts[Facet.TARGET]), conditions,
            lambda text: ctx.emit(Warn(stage=stage, message=text)), mode == "fail",
        )  # fmt: skip

    def add(self, piece: Piece, error: Failed) -> str:
        """Put aside what failed twice, and return its folder.

        Raises StageError if that is to end the run.
        """
        kept = str(self.place.failed(piece, error, self.conditions))
        row = {
            "engine": piece.engine, "implementation": piece.implementation, "doing": piece.doing,
            "how": str(error), "retried": True, "folder": kept,
        }  # fmt: skip
        self.listed.setdefault(piece.task, []).append(row)
        text = f"task {piece.task}: {piece.doing} {piece.who} failed twice: {error}"
        shown = f"python {kept}/reproduce.py shows it"
        if self.fatal:
            raise StageError(f"{text}; {shown}; tasks.on_task_failure: fallback goes on without it")
        self.warn(f"{text}; it was put aside, {shown}")
        return kept

    def told(self) -> str:
        """Return what a summary says of them."""
        count = sum(map(len, self.listed.values()))
        return f"; {count} failures put aside" if count else ""
