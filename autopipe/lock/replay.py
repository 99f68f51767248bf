"""Stage `tune` where a lock says what tuning found: nothing is measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.errors import LockError
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind


class Replay(Stage, frozen=True):
    """Gives the records beside a lock, as the bytes that tuning once gave."""

    name: ClassVar[str] = "tune"
    version: ClassVar[int] = 1
    produces: ClassVar[Kind] = Kind.RECORDS
    needs: ClassVar[Mapping[str, Need]] = {"tasks": Need(Kind.TASKS)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TARGET})

    records: Path
    """The file beside the lock."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:  # noqa: ARG003
        """Return None: a pipeline file does not ask for it, a lock does."""
        return None

    def sources(self) -> Mapping[str, Path]:
        """Return the records."""
        return {"records": self.records}

    def run(self, ctx: Context) -> str:
        """Write `records.jsonl` and `tuning.json`.

        Raises LockError, which names each task that is missing, extra or stale, each record whose
        schedule holds what no schedule needs, and each whose time can not be true.
        """
        from autopipe.lock import records as beside
        from autopipe.lock.file import read_text
        from autopipe.tasks.task import read_tasks

        tuned = beside.read_records(read_text(self.records), self.records)
        beside.require_harmless(tuned, self.records)
        tasks = read_tasks(ctx.inputs["tasks"])
        if misfits := beside.list_task_mismatches(tuned, tasks):
            raise LockError("\n".join([f"{self.records}: is not of these tasks:", *misfits]))
        beside.refuse_untrue(tuned, tasks, ctx.facts[Facet.TARGET], self.records)
        tuned.write(ctx.out)
        known, every = len(tuned.records), len(tuned.report.tasks)
        return f"{known} of {every} tasks tuned, as the lock says; its times are claims"
