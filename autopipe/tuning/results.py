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
from autopipe.tuning.task_state import TaskState


class Results:
    """The best record of each task, and how its contenders did."""

    def __init__(
        self,
        states: Sequence[TaskState],
        journal: Journal,
        failures: Failures,
    ) -> None:
        self._states = states
        self._journal = journal
        self._failures = failures
        self._best = {state.task.workload: journal.best(state) for state in states}

    def write(self, folder: Path, ended: str) -> None:
        """Write `records.jsonl` and `tuning.json`.

        Raises StageError if trials were made and no task has a single time.
        """
        found = [row for row in self._best.values() if row is not None]
        if not found and any(state.trials for state in self._states):
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
            "tasks": [self._report(state) for state in self._states],
        }
        (folder / "tuning.json").write_text(pretty(document), encoding="utf-8")

    def summary(self, ended: str) -> str:
        """Return one line for people."""
        trials = sum(state.trials for state in self._states)
        failed = sum(state.failed for state in self._states)
        total = latency(self._states)
        speed = f", {total * 1e3:.2f} ms in all" if total is not None else ""
        if not self._states:
            return "no task to tune"
        return (
            f"{trials} trials ({failed} failed); {self._proven().told()}{speed};"
            f" {ended}{self._failures.told()}"
        )

    def _proven(self) -> Shares:
        """Return how much of the time was searched, measured and steady, all of it here."""
        proofs = {}
        for state in self._states:
            row = self._best[state.task.workload]
            if row is not None:
                engines = {row.record.engine for row in self._journal.rows(state)}
                searched = not engines <= set(WITHOUT_SEARCH)
                proof = Proof(row.record.median, searched, not row.record.unsteady)
                proofs[row.record.workload] = proof
        return shares_of((state.task for state in self._states), proofs)

    def _entry(self, row: Row) -> dict[str, object]:
        record = row.record
        trials = {state.task.workload: state.trials for state in self._states}
        return {
            "workload": record.workload, "engine": record.engine,
            "implementation": record.implementation, "schedule": record.schedule,
            "seconds": record.seconds, "trials": trials[record.workload],
        }  # fmt: skip

    def _report(self, state: TaskState) -> dict[str, object]:
        row = self._best[state.task.workload]
        return {
            "task": state.task.index, "name": state.task.name,
            "workload": state.task.workload, "trials": state.trials,
            "failed": state.failed, "engine": row and row.record.engine,
            "implementation": row and row.record.implementation,
            "seconds": row and row.record.median, "stopped": state.stopped,
            "rule": state.contest.position, "share": state.share,
            "failures": self._failures.listed.get(state.task.name, []),
            **self._contenders(state, row),
        }  # fmt: skip

    def _contenders(self, state: TaskState, winner: Row | None) -> dict[str, object]:
        """Return how each contender did, the fastest first, and how far the winner is ahead."""
        out = {by: entry.out for by, entry in state.contest.entries.items()}
        rows = self._journal.rows(state)
        known = dict.fromkeys((*state.starts, *out, *(contender(row.record) for row in rows)))
        found = {by: {"trials": 0, "failed": 0, "best": math.inf} for by in known}
        for row in rows:
            tally = found[contender(row.record)]
            tally["trials"] += not row.record.session.endswith(RUN_OFF)
            tally["failed"] += row.record.median == math.inf
            tally["best"] = min(tally["best"], row.record.median)
        for row in reversed(self._journal.settled_rows(state)):
            found[contender(row.record)]["best"] = row.record.median
        ranked = sorted(found, key=lambda by: (found[by]["best"], by))
        won = contender(winner.record) if winner else None
        own = winner.record.median if winner else math.inf
        others = [found[by]["best"] for by in ranked if by != won]
        starts = [found[by]["best"] for by in state.starts]
        return {
            "contenders": [_row(by, found[by], out.get(by)) for by in ranked],
            "over_next": _factor(others, own),
            "over_start": _factor(starts, own),
        }

    def _last_error(self) -> str:
        for state in self._states:
            task = state.task
            rows = self._journal.store.rows(task.workload, state.text, self._journal.platform)
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
