"""The records beside a lock: what tuning found, a line a task, as it is read again without tuning.

The first line tells how tuning ended; each other one holds what `tuning.json` says of a task and
its line of `records.jsonl`, sorted by workload.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from autopipe.errors import LockError
from autopipe.lock.text import CONFLICT, LINE_ENDS
from autopipe.pipeline.canonical import pretty
from autopipe.task import Task

RECORDS: Final = "records.jsonl"
TUNING: Final = "tuning.json"


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning found, as the files of a RECORDS artifact and of a lock say it."""

    head: dict[str, Any]
    """How tuning ended."""
    rows: tuple[dict[str, Any], ...]
    """What became of each task, in the order of the model."""
    records: dict[str, str]
    """The line of the best record, by workload."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read a RECORDS artifact."""
        head = json.loads((folder / TUNING).read_text(encoding="utf-8"))
        rows = tuple(head.pop("tasks"))
        lines = (folder / RECORDS).read_text(encoding="utf-8").splitlines()
        return cls(head, rows, {json.loads(line)["workload"]: line for line in lines})

    @classmethod
    def parse(cls, text: str, path: Path) -> Self:
        """Read what `text` wrote. Raises LockError with the line."""
        lines = text.removesuffix("\n").split("\n")
        values = [_value(line, path, number) for number, line in enumerate(lines, 1)]
        try:
            head = values[0]
            if head.pop("version") != 1:
                raise LockError(f"{path}:1: this autopipe reads version 1; upgrade it")
            rows = sorted((value["tuning"] for value in values[1:]), key=lambda row: row["task"])
            best = [value["record"] for value in values[1:] if value["record"]]
            return cls(head, tuple(rows), {record["workload"]: _line(record) for record in best})
        except (IndexError, LookupError, TypeError, AttributeError) as error:
            raise LockError(f"{path}: these are no records of a lock: {error!r}") from error

    def text(self) -> str:
        """Return the lines that are kept beside a lock."""
        lines = [_line({"version": 1, **self.head})]
        for row in sorted(self.rows, key=lambda row: str(row["workload"])):
            record = self.records.get(row["workload"])
            lines.append(_line({"record": record and json.loads(record), "tuning": row}))
        return "".join(f"{line}\n" for line in lines)

    def write(self, folder: Path) -> None:
        """Write the files of a RECORDS artifact."""
        lines = "".join(f"{line}\n" for _, line in sorted(self.records.items()))
        (folder / RECORDS).write_text(lines, encoding="utf-8")
        document = pretty({**self.head, "tasks": list(self.rows)})
        (folder / TUNING).write_text(document, encoding="utf-8")

    def misfits(self, tasks: tuple[Task, ...]) -> list[str]:
        """Name each kept task that is missing here, is another one here, or is not needed."""
        kept = {task.workload: task for task in tasks if task.dropped is None}
        known = {str(row["workload"]): str(row["name"]) for row in self.rows}
        missing = {w: task.name for w, task in kept.items() if w not in known}
        extra = {w: name for w, name in known.items() if w not in kept}
        stale = set(missing.values()) & set(extra.values())
        return [
            *(_told(w, name, "missing") for w, name in missing.items() if name not in stale),
            *(_told(w, name, "extra") for w, name in extra.items() if name not in stale),
            *(f"task {name}: stale, its loops are others now" for name in sorted(stale)),
        ]


def _told(workload: str, name: str, how: str) -> str:
    return f"task {name} (workload {workload}): {how} in the lock"


def _value(line: str, path: Path, number: int) -> dict[str, Any]:
    if line.endswith("\r"):
        raise LockError(f"{path}:{number}: it ends as lines do on Windows; {LINE_ENDS}")
    if CONFLICT.match(line):
        raise LockError(f"{path}:{number}: a merge conflict; take one side whole")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LockError(f"{path}:{number}: edited or cut short: {error}") from None
    if not isinstance(value, dict):
        raise LockError(f"{path}:{number}: this is no record")
    return value


def _line(value: object) -> str:
    """Write a line as *tune* does."""
    return json.dumps(value, sort_keys=True)
