"""The records beside a lock: the results of tuning, a line a task, which a replay reads.

The first line holds how tuning ended; each other one holds the entry of a task in `tuning.json`
and its line of `records.jsonl`, sorted by workload.
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
    """A line of the file after the first."""

    tuning: TunedTask
    record: BestRecord | None = None


def read_records(text: str, path: Path) -> TuningResult:
    """Parse the output of `format_records`. Raises LockError with the line."""
    head, *rest = text.removesuffix("\n").split("\n")
    report = _parse_head(head, path)
    lines = [_parse_line(line, path, number) for number, line in enumerate(rest, 2)]
    tasks = tuple(sorted((line.tuning for line in lines), key=lambda task: task.task))
    records = (line.record for line in lines if line.record is not None)
    return TuningResult(
        report.model_copy(update={"tasks": tasks}), {record.workload: record for record in records}
    )


def format_records(tuning_result: TuningResult) -> str:
    """Format the result of tuning as the lines of a records file."""
    document = tuning_result.report.document()
    tasks = document.pop("tasks")
    lines = [_to_json({"version": 1, **document})]
    for task in sorted(tasks, key=lambda task: str(task["workload"])):
        record = tuning_result.records.get(task["workload"])
        lines.append(_to_json({"record": record and record.document(), "tuning": task}))
    return "".join(f"{line}\n" for line in lines)


def find_forbidden(records: Iterable[BestRecord]) -> dict[str, str]:
    """Find records whose schedules contain instructions that no schedule needs.

    Returns the reason by workload, with the engine. No tuning writes such a record.
    """
    from autopipe.traces.reading import Forbidden, check_schedule

    reasons = {}
    for record in sorted(records, key=lambda record: record.workload):
        try:
            for schedule in (record.schedule, *_open_schedules(record)):
                check_schedule(schedule)
        except Forbidden as error:
            reasons[record.workload] = f"engine {format_value(record.engine)}: {error}"
    return reasons


def _open_schedules(record: BestRecord) -> Iterator[str]:
    return (setting.schedule for setting in record.dynamic_settings.values())


def require_harmless(tuning_result: TuningResult, path: Path) -> None:
    """Raise LockError, with record and instruction, unless all schedules are harmless."""
    names = {task.workload: format_value(task.name) for task in tuning_result.report.tasks}
    wrong = [
        f"task {names.get(workload, '?')} (workload {format_value(workload)}), {why}"
        for workload, why in find_forbidden(tuning_result.records.values()).items()
    ]
    if wrong:
        raise LockError("\n  ".join([f"{path}: refused, not written by tuning:", *wrong]))


def refuse_untrue(
    tuning_result: TuningResult, tasks: "Iterable[Task]", target: Mapping[str, object], path: Path
) -> None:
    """Raise LockError with each task whose time is below its lower bound."""
    from autopipe.records.times import list_untrue_times

    if untrue_times := list_untrue_times(tuning_result.records.values(), tasks, target):
        lines = "\n  ".join(untrue_times.values())
        raise LockError(f"{path}: times that cannot be true; tune again\n  {lines}")


def list_task_mismatches(tuning_result: TuningResult, tasks: "Iterable[Task]") -> list[str]:
    """List the tasks that are missing in the records, stale, or not needed."""
    current_tasks = {task.workload: task for task in tasks if task.dropped is None}
    locked_names = {task.workload: task.name for task in tuning_result.report.tasks}
    missing = {w: task.name for w, task in current_tasks.items() if w not in locked_names}
    extra = {w: name for w, name in locked_names.items() if w not in current_tasks}
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
    """Parse the first line as a report without tasks."""
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
    """Serialize a value like *tune* does."""
    return json.dumps(value, sort_keys=True)
