"""The records beside a lock: what tuning found, a line a task, as it is read again without tuning.

The first line tells how tuning ended; each other one holds what `tuning.json` says of a task and
its line of `records.jsonl`, sorted by workload.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autopipe import foreign
from autopipe.artifacts.document import Part, validate_document
from autopipe.artifacts.tuning import BestRecord, TunedTask, TuningReport, TuningResult
from autopipe.config.problem import format_value
from autopipe.errors import LockError
from autopipe.lock.text import CONFLICT, LINE_ENDS

if TYPE_CHECKING:
    from autopipe.tasks.task import Task


class _Line(Part, frozen=True):
    """A line of the file but the first."""

    tuning: TunedTask
    record: BestRecord | None = None


def read_records(text: str, path: Path) -> TuningResult:
    """Read what `format_records` wrote to a file. Raises LockError with the line."""
    head, *rest = text.removesuffix("\n").split("\n")
    report = _parse_head(head, path)
    lines = [_parse_line(line, path, number) for number, line in enumerate(rest, 2)]
    tasks = tuple(sorted((line.tuning for line in lines), key=lambda task: task.task))
    records = (line.record for line in lines if line.record is not None)
    return TuningResult(
        report.model_copy(update={"tasks": tasks}), {record.workload: record for record in records}
    )


def format_records(tuned: TuningResult) -> str:
    """Return the lines that are kept beside a lock."""
    document = tuned.report.document()
    del document["tasks"]
    lines = [_to_json({"version": 1, **document})]
    for task in sorted(tuned.report.tasks, key=lambda task: task.workload):
        record = tuned.records.get(task.workload)
        lines.append(_to_json({"record": record and record.document(), "tuning": task.document()}))
    return "".join(f"{line}\n" for line in lines)


def find_forbidden(records: Iterable[BestRecord]) -> dict[str, str]:
    """Say what is wrong with each record whose schedule holds what no schedule needs.

    By workload, with the engine; a lock with such a record was written by nobody's tuning.
    """
    from autopipe.traces.reading import Forbidden, check_schedule

    found = {}
    for record in sorted(records, key=lambda record: record.workload):
        try:
            for schedule in (record.schedule, *_open_schedules(record)):
                check_schedule(schedule)
        except Forbidden as error:
            found[record.workload] = f"engine {format_value(record.engine)}: {error}"
    return found


def _open_schedules(record: BestRecord) -> Iterator[str]:
    return (setting.schedule for setting in record.open_settings.values())


def require_harmless(tuned: TuningResult, path: Path) -> None:
    """Raise LockError, which names record and instruction, unless all schedules are data."""
    names = {task.workload: format_value(task.name) for task in tuned.report.tasks}
    wrong = [
        f"task {names.get(workload, '?')} (workload {format_value(workload)}), {why}"
        for workload, why in find_forbidden(tuned.records.values()).items()
    ]
    if wrong:
        raise LockError("\n  ".join([f"{path}: refused, nobody's tuning wrote this:", *wrong]))


def refuse_untrue(
    tuned: TuningResult, tasks: "Iterable[Task]", target: Mapping[str, object], path: Path
) -> None:
    """Raise LockError, with the name of each task whose time can not be true."""
    from autopipe.records.times import list_untrue_times

    if found := list_untrue_times(tuned.records.values(), tasks, target):
        told = "\n  ".join(found.values())
        raise LockError(f"{path}: times that can not be true; tune again\n  {told}")


def list_task_mismatches(tuned: TuningResult, tasks: "Iterable[Task]") -> list[str]:
    """Name each kept task that is missing there, is another one there, or is not needed."""
    kept = {task.workload: task for task in tasks if task.dropped is None}
    known = {task.workload: task.name for task in tuned.report.tasks}
    missing = {w: task.name for w, task in kept.items() if w not in known}
    extra = {w: name for w, name in known.items() if w not in kept}
    stale = set(missing.values()) & set(extra.values())
    return [
        *(
            _describe_mismatch(w, name, "missing")
            for w, name in missing.items()
            if name not in stale
        ),
        *(_describe_mismatch(w, name, "extra") for w, name in extra.items() if name not in stale),
        *(f"task {format_value(name)}: stale, its loops are others now" for name in sorted(stale)),
    ]


def _describe_mismatch(workload: str, name: str, how: str) -> str:
    return f"task {format_value(name)} (workload {workload}): {how} in the lock"


def _parse_head(line: str, path: Path) -> TuningReport:
    """Read the first line, as of no task."""
    head = _parse_json_object(line, path, 1)
    if head.pop("version", None) != 1:
        raise LockError(f"{path}:1: this autopipe reads version 1; upgrade it")
    try:
        return validate_document(TuningReport, _to_json({**head, "tasks": []}))
    except foreign.MalformedError as error:
        raise LockError(f"{path}:1: not how tuning ends: {error}") from None


def _parse_line(line: str, path: Path, number: int) -> _Line:
    _parse_json_object(line, path, number)
    try:
        return validate_document(_Line, line)
    except foreign.MalformedError as error:
        raise LockError(f"{path}:{number}: no record of a lock: {error}") from None


def _parse_json_object(line: str, path: Path, number: int) -> dict[str, Any]:
    if line.endswith("\r"):
        raise LockError(f"{path}:{number}: it ends as lines do on Windows; {LINE_ENDS}")
    if CONFLICT.match(line):
        raise LockError(f"{path}:{number}: a merge conflict; take one side whole")
    try:
        return foreign.parse_object(line)
    except foreign.MalformedError as error:
        raise LockError(f"{path}:{number}: edited or cut short: {error}") from None


def _to_json(value: object) -> str:
    """Write a line as *tune* does."""
    return json.dumps(value, sort_keys=True)
