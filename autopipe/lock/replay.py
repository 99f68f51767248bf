"""Stage `tune` with a current lock: copies its records, measures nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.errors import LockError
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind


class Replay(Stage, frozen=True):
    """Writes the records beside a lock as tuning wrote them."""

    name: ClassVar[str] = "tune"
    version: ClassVar[int] = 1
    produces: ClassVar[Kind] = Kind.RECORDS
    needs: ClassVar[Mapping[str, Need]] = {"tasks": Need(Kind.TASKS)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TARGET})

    records: Path
    """The file beside the lock."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:  # noqa: ARG003
        """Return None: a replay is configured by a lock, not by a pipeline file."""
        return None

    def sources(self) -> Mapping[str, Path]:
        """Return the records."""
        return {"records": self.records}

    def run(self, ctx: Context) -> str:
        """Write `records.jsonl` and `tuning.json`.

        Raises LockError with each task that is missing, extra or stale, each record with a
        forbidden instruction, and each whose time is below its lower bound.
        """
        from autopipe.lock import records as beside
        from autopipe.lock.file import read_text
        from autopipe.tasks.task import read_tasks

        tuning_result = beside.read_records(read_text(self.records), self.records)
        beside.require_harmless(tuning_result, self.records)
        tasks = read_tasks(ctx.inputs["tasks"])
        if misfits := beside.list_task_mismatches(tuning_result, tasks):
            raise LockError("\n".join([f"{self.records}: is not of these tasks:", *misfits]))
        beside.refuse_untrue(tuning_result, tasks, ctx.facts[Facet.TARGET], self.records)
        tuning_result.write(ctx.out)
        record_count, task_count = len(tuning_result.records), len(tuning_result.report.tasks)
        return (
            f"{record_count} of {task_count} tasks tuned, as the lock says; "
            "its times are unverified"
        )
