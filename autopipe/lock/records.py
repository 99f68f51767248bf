"""The records beside a lock: what tuning found, a line a task, as it is read again without tuning.

The first line tells how tuning ended; each other one holds what `tuning.json` says of a task and
its line of `records.jsonl`, sorted by workload.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from autopipe import foreign
from autopipe.config.problem import shown
from autopipe.errors import LockError
from autopipe.lock import rows
from autopipe.lock.text import CONFLICT, LINE_ENDS
from autopipe.records.times import complaints
from autopipe.store.canonical import pretty
from autopipe.tasks.task import Task
from autopipe.traces.reading import Forbidden, check

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
        """Read a RECORDS artifact. Raises ValueError, and OSError, for what is none."""
        head = foreign.parse_object((folder / TUNING).read_bytes())
        tasks = rows.listed(head.pop("tasks", None), "tasks")
        lines = (folder / RECORDS).read_text(encoding="utf-8").splitlines()
        best = {rows.best(foreign.parse(line))["workload"]: line for line in lines}
        return cls(head, tuple(map(rows.task, tasks)), best)

    @classmethod
    def parse(cls, text: str, path: Path) -> Self:
        """Read what `text` wrote. Raises LockError with the line."""
        lines = text.removesuffix("\n").split("\n")
        head, *values = [_value(line, path, number) for number, line in enumerate(lines, 1)]
        if head.pop("version", None) != 1:
            raise LockError(f"{path}:1: this autopipe reads version 1; upgrade it")
        found: list[dict[str, Any]] = []
        records: dict[str, str] = {}
        for number, value in enumerate(values, 2):
            try:
                found.append(rows.task(value.get("tuning")))
                if value.get("record") is not None:
                    record = rows.best(value["record"])
                    records[record["workload"]] = _line(record)
            except ValueError as error:
                raise LockError(f"{path}:{number}: no record of a lock: {error}") from error
        return cls(head, tuple(sorted(found, key=lambda row: int(row["task"]))), records)

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

    @property
    def schedules(self) -> dict[str, str]:
        """How each task is scheduled, by workload."""
        return {w: str(json.loads(line).get("schedule")) for w, line in self.records.items()}

    def forbidden(self) -> dict[str, str]:
        """Say what is wrong with each record whose schedule holds what no schedule needs.

        By workload, with the engine; a lock with such a record was written by nobody's tuning.
        """
        found = ((w, _forbidden(json.loads(line))) for w, line in sorted(self.records.items()))
        return {workload: why for workload, why in found if why}

    def harmless(self, path: Path) -> None:
        """Raise LockError, which names record and instruction, unless all schedules are data."""
        names = {str(row["workload"]): shown(row["name"]) for row in self.rows}
        wrong = [
            f"task {names.get(workload, '?')} (workload {shown(workload)}), {why}"
            for workload, why in self.forbidden().items()
        ]
        if wrong:
            raise LockError("\n  ".join([f"{path}: refused, nobody's tuning wrote this:", *wrong]))

    def refuse_untrue(
        self, tasks: Iterable[Task], target: Mapping[str, object], path: Path
    ) -> None:
        """Raise LockError, with the name of each task whose time can not be true."""
        records = [json.loads(line) for line in self.records.values()]
        if found := complaints(records, tasks, target):
            told = "\n  ".join(found.values())
            raise LockError(f"{path}: times that can not be true; tune again\n  {told}")

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
            *(f"task {shown(name)}: stale, its loops are others now" for name in sorted(stale)),
        ]


def _forbidden(record: Mapping[str, Any]) -> str:
    try:
        check(str(record["schedule"]))
    except Forbidden as error:
        return f"engine {shown(record.get('engine'))}: {error}"
    return ""


def _told(workload: str, name: str, how: str) -> str:
    return f"task {shown(name)} (workload {workload}): {how} in the lock"


def _value(line: str, path: Path, number: int) -> dict[str, Any]:
    if line.endswith("\r"):
        raise LockError(f"{path}:{number}: it ends as lines do on Windows; {LINE_ENDS}")
    if CONFLICT.match(line):
        raise LockError(f"{path}:{number}: a merge conflict; take one side whole")
    try:
        return foreign.parse_object(line)
    except foreign.MalformedError as error:
        raise LockError(f"{path}:{number}: edited or cut short: {error}") from None


def _line(value: object) -> str:
    """Write a line as *tune* does."""
    return json.dumps(value, sort_keys=True)
