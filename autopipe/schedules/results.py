"""What tuning found, as the artifact of the stage."""

import json
from collections.abc import Sequence
from pathlib import Path

from autopipe.errors import StageError
from autopipe.pipeline.canonical import pretty
from autopipe.records.store import Row
from autopipe.schedules.progress import latency
from autopipe.schedules.tuner import Journal, Work


class Results:
    """The best record of each task."""

    def __init__(self, works: Sequence[Work], journal: Journal) -> None:
        self._works = works
        self._journal = journal
        self._best = {work.standing.task.workload: journal.best(work) for work in works}

    def write(self, folder: Path, ended: str) -> None:
        """Write `records.jsonl` and `tuning.json`.

        Raises StageError if trials were made and no task has a single time.
        """
        found = [row for row in self._best.values() if row is not None]
        if not found and any(work.standing.trials for work in self._works):
            self._journal.session.forget()  # or the next run would find its budget spent
            raise StageError(f"no candidate of any task could be measured: {self._last_error()}")
        with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
            for row in sorted(found, key=lambda row: row.record.workload):
                file.write(json.dumps(self._entry(row), sort_keys=True) + "\n")
        document = {
            "ended": ended,
            "seconds": self._journal.session.elapsed,
            "session": self._journal.session.name,
            "tasks": [self._report(work) for work in self._works],
        }
        (folder / "tuning.json").write_text(pretty(document), encoding="utf-8")

    def summary(self, ended: str) -> str:
        """Return one line for people."""
        standings = [work.standing for work in self._works]
        trials = sum(standing.trials for standing in standings)
        failed = sum(standing.failed for standing in standings)
        tuned = sum(row is not None for row in self._best.values())
        total = latency(standings)
        speed = f", {total * 1e3:.2f} ms in all" if total is not None else ""
        if not standings:
            return "no task to tune"
        return (
            f"{trials} trials ({failed} failed), {tuned} of {len(standings)} tasks tuned{speed};"
            f" {ended}"
        )

    def _entry(self, row: Row) -> dict[str, object]:
        record = row.record
        trials = {w.standing.task.workload: w.standing.trials for w in self._works}
        return {
            "workload": record.workload, "engine": record.engine,
            "implementation": record.implementation, "schedule": record.schedule,
            "seconds": record.seconds, "trials": trials[record.workload],
        }  # fmt: skip

    def _report(self, work: Work) -> dict[str, object]:
        standing = work.standing
        row = self._best[standing.task.workload]
        return {
            "task": standing.task.index, "name": standing.task.name,
            "workload": standing.task.workload, "trials": standing.trials,
            "failed": standing.failed, "engine": row and row.record.engine,
            "seconds": row and row.record.median, "stopped": standing.stopped,
        }  # fmt: skip

    def _last_error(self) -> str:
        for work in self._works:
            task = work.standing.task
            rows = self._journal.store.rows(task.workload, work.text, self._journal.platform)
            for row in reversed(rows):
                if row.record.error:
                    return f"{task.name}: {row.record.error}"
        return "no reason given"
