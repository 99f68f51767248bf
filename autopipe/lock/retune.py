"""Stage `tune` where a lock knows some of the tasks: only the others are tuned."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from autopipe.artifacts.tuning import TuningReport, TuningResult
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.stage import Context
from autopipe.stages.tune import TuneStage


class Retune(TuneStage, frozen=True):
    """Tunes what a lock does not know, and takes over from it what it knows."""

    version: ClassVar[int] = 2

    records: Path
    """The file beside the lock."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:  # noqa: ARG003
        """Return None: a pipeline file does not ask for it, `run --update` does."""
        return None

    def sources(self) -> Mapping[str, Path]:
        """Return the records."""
        return {"records": self.records}

    def run(self, ctx: Context) -> str:
        """Write `records.jsonl` and `tuning.json`. Raises LockError, and what *tune* raises.

        What was searched and measured of the others is not the share of all, so it is left out.
        Without the schedules that the lock knows the model is not what it will be, so nothing is
        decided inside of it.
        """
        from autopipe.lock import records as beside
        from autopipe.lock.file import read_text
        from autopipe.tasks.task import read_tasks

        tasks = read_tasks(ctx.inputs["tasks"])
        now = {task.workload: task for task in tasks if task.dropped is None}
        locked = beside.read_records(read_text(self.records), self.records)
        beside.require_harmless(locked, self.records)
        beside.refuse_untrue(locked, tasks, ctx.facts[Facet.TARGET], self.records)
        kept = {name: task for name, task in locked.tasks.items() if name in now}
        rest = ctx.work / "rest"
        rest.mkdir(exist_ok=True)
        marked = [
            task.model_copy(update={"dropped": "the lock knows it"}) if task.workload in kept
            else task
            for task in tasks
        ]  # fmt: skip
        listed = [task.model_dump(mode="json") for task in marked]
        (rest / "tasks.json").write_text(json.dumps(listed), encoding="utf-8")
        if not (rest / "workloads").is_symlink():
            (rest / "workloads").symlink_to(ctx.inputs["tasks"] / "workloads")
        summary = super().run(replace(ctx, inputs={"tasks": rest}))
        found = TuningResult.read(ctx.out)
        taken = [
            task.model_copy(update={"task": now[name].index, "name": now[name].name})
            for name, task in kept.items()
        ]
        report = TuningReport(
            ended=found.report.ended,
            seconds=found.report.seconds,
            session=found.report.session,
            tasks=tuple(sorted([*found.report.tasks, *taken], key=lambda task: task.task)),
        )
        records = {name: record for name, record in locked.records.items() if name in kept}
        TuningResult(report, {**records, **found.records}).write(ctx.out)
        return f"{len(kept)} tasks as the lock says, their times are claims; the others: {summary}"
