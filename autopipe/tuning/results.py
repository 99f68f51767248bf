"""What tuning found, as the artifact of the stage."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from autopipe.errors import StageError
from autopipe.records.session import RUN_OFF
from autopipe.records.store import Row
from autopipe.safety.failures import Failures
from autopipe.schedules.policy import Contender
from autopipe.store.canonical import pretty
from autopipe.tasks.shares import WITHOUT_SEARCH, Proof, Shares
from autopipe.tasks.shares import shares as shares_of
from autopipe.tuning.journal import Journal, contender
from autopipe.tuning.progress import latency
from autopipe.tuning.task_state import Work


class Results:
    """The best record of each task, and how its contenders did."""

    def __init__(
        self,
        works: Sequence[Work],
        journal: Journal,
        shares: Mapping[int, float],
        failures: Failures,
    ) -> None:
        """Take the part of the model's time that each task had before the search, by index."""
        self._works = works
        self._journal = journal
        self._shares = shares
        self._failures = failures
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
            "shares": self._proven().named(),
            "tasks": [self._report(work) for work in self._works],
        }
        (folder / "tuning.json").write_text(pretty(document), encoding="utf-8")

    def summary(self, ended: str) -> str:
        """Return one line for people."""
        standings = [work.standing for work in self._works]
        trials = sum(standing.trials for standing in standings)
        failed = sum(standing.failed for standing in standings)
        total = latency(standings)
        speed = f", {total * 1e3:.2f} ms in all" if total is not None else ""
        if not standings:
            return "no task to tune"
        return (
            f"{trials} trials ({failed} failed); {self._proven().told()}{speed};"
            f" {ended}{self._failures.told()}"
        )

    def _proven(self) -> Shares:
        """Return how much of the time was searched, measured and steady, all of it here."""
        proofs = {}
        for work in self._works:
            row = self._best[work.standing.task.workload]
            if row is not None:
                engines = {row.record.engine for row in self._journal.rows(work)}
                searched = not engines <= set(WITHOUT_SEARCH)
                proof = Proof(row.record.median, searched, not row.record.unsteady)
                proofs[row.record.workload] = proof
        return shares_of((work.standing.task for work in self._works), proofs)

    def _entry(self, row: Row) -> dict[str, object]:
        record = row.record
        trials = {w.standing.task.workload: w.standing.trials for w in self._works}
        return {
            "workload": record.workload, "engine": record.engine,
            "implementation": record.implementation, "schedule": record.schedule,
            "seconds": record.seconds, "trials": trials[record.workload],
        }  # fmt: skip

    def _report(self, work: Work) -> dict[str, object]:
        standing, contest = work.standing, work.contest
        row = self._best[standing.task.workload]
        return {
            "task": standing.task.index, "name": standing.task.name,
            "workload": standing.task.workload, "trials": standing.trials,
            "failed": standing.failed, "engine": row and row.record.engine,
            "implementation": row and row.record.implementation,
            "seconds": row and row.record.median, "stopped": standing.stopped,
            "rule": contest.position, "share": self._shares[standing.task.index],
            "failures": self._failures.listed.get(standing.task.name, []),
            **self._contenders(work, row),
        }  # fmt: skip

    def _contenders(self, work: Work, winner: Row | None) -> dict[str, object]:
        """Return how each contender did, the fastest first, and how far the winner is ahead."""
        out = {entry.by: entry.out for entry in work.contest.entries.values()}
        rows = self._journal.rows(work)
        known = dict.fromkeys((*work.started(), *out, *(contender(row.record) for row in rows)))
        found = {by: {"trials": 0, "failed": 0, "best": math.inf} for by in known}
        for row in rows:
            tally = found[contender(row.record)]
            tally["trials"] += not row.record.session.endswith(RUN_OFF)
            tally["failed"] += row.record.median == math.inf
            tally["best"] = min(tally["best"], row.record.median)
        for row in reversed(self._journal.settled_rows(work)):
            found[contender(row.record)]["best"] = row.record.median
        ranked = sorted(found, key=lambda by: (found[by]["best"], by))
        won = contender(winner.record) if winner else None
        own = winner.record.median if winner else math.inf
        others = [found[by]["best"] for by in ranked if by != won]
        starts = [found[by]["best"] for by in work.started()]
        return {
            "contenders": [_row(by, found[by], out.get(by)) for by in ranked],
            "over_next": _factor(others, own),
            "over_start": _factor(starts, own),
        }

    def _last_error(self) -> str:
        for work in self._works:
            task = work.standing.task
            rows = self._journal.store.rows(task.workload, work.text, self._journal.platform)
            for row in reversed(rows):
                if row.record.error:
                    return f"{task.name}: {row.record.error}"
        return "no reason given"


def _row(by: Contender, tally: Mapping[str, float], out: str | None) -> dict[str, object]:
    return {
        "engine": by.engine, "implementation": by.implementation, "trials": tally["trials"],
        "failed": tally["failed"], "seconds": _finite(tally["best"]), "stopped": out,
    }  # fmt: skip


def _factor(others: Sequence[float], own: float) -> float | None:
    """Return how many times slower the fastest of the others is; null if none has a time."""
    return _finite(min(others, default=math.inf) / own)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
