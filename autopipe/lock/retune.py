"""Stage `tune` of `run --update`: only tasks that are not in the lock are tuned."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from autopipe.artifacts.tuning import TuningReport, TuningResult
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.stage import Context
from autopipe.stages.tune import TuneStage


class Retune(TuneStage, frozen=True):
    """Tunes tasks that are not in the lock, and keeps the locked schedules of the others."""

    version: ClassVar[int] = 2

    records: Path
    """The file beside the lock."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:  # noqa: ARG003
        """Return None: it is configured by `run --update`, not by a pipeline file."""
        return None

    def sources(self) -> Mapping[str, Path]:
        """Return the records."""
        return {"records": self.records}

    def run(self, ctx: Context) -> str:
        """Write `records.jsonl` and `tuning.json`. Raises LockError, and the errors of *tune*.

        The shares of searched and measured time would exclude the locked tasks, so they are left
        out. Without the locked schedules there is no in-model comparison of the final model.
        """
        from autopipe.lock import records as beside
        from autopipe.lock.file import read_text
        from autopipe.tasks.task import read_tasks

        tasks = read_tasks(ctx.inputs["tasks"])
        kept_tasks = {task.workload: task for task in tasks if task.dropped is None}
        locked_result = beside.read_records(read_text(self.records), self.records)
        beside.require_harmless(locked_result, self.records)
        beside.refuse_untrue(locked_result, tasks, ctx.facts[Facet.TARGET], self.records)
        reused = {name: task for name, task in locked_result.tasks.items() if name in kept_tasks}
        rest_folder = ctx.work / "rest"
        rest_folder.mkdir(exist_ok=True)
        marked_tasks = [
            task.model_copy(update={"dropped": "the lock knows it"}) if task.workload in reused
            else task
            for task in tasks
        ]  # fmt: skip
        task_documents = [task.model_dump(mode="json") for task in marked_tasks]
        (rest_folder / "tasks.json").write_text(json.dumps(task_documents), encoding="utf-8")
        if not (rest_folder / "workloads").is_symlink():
            (rest_folder / "workloads").symlink_to(ctx.inputs["tasks"] / "workloads")
        summary = super().run(ctx._replace(inputs={"tasks": rest_folder}))
        result = TuningResult.read(ctx.out)
        reused_tasks = [
            task.model_copy(update={"task": kept_tasks[name].index, "name": kept_tasks[name].name})
            for name, task in reused.items()
        ]
        report = TuningReport(
            ended=result.report.ended,
            seconds=result.report.seconds,
            session=result.report.session,
            tasks=tuple(sorted([*result.report.tasks, *reused_tasks], key=lambda task: task.task)),
        )
        records = {name: record for name, record in locked_result.records.items() if name in reused}
        TuningResult(report, {**records, **result.records}).write(ctx.out)
        return (
            f"{len(reused)} tasks as the lock says, their times are unverified; "
            f"the others: {summary}"
        )
