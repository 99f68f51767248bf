"""Format tuning records as tables and as JSON."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from autopipe import foreign
from autopipe.records.catalog import WorkloadRecords
from autopipe.records.record import Platform, Record
from autopipe.report.escape import escape_text
from autopipe.report.units import format_plural, format_seconds

WIDTH = 80
_SHOWN = 3
"""Number of schedules that `show` lists per workload and platform."""


def list_lines(entries: Sequence[WorkloadRecords], width: int = WIDTH) -> Iterator[str]:
    """Yield the table: one line per workload with its computation, below each platform."""
    for platform, some in groupby(entries, key=lambda entry: entry.platform):
        yield escape_text(format_platform(platform), width)
        yield f"  {'workload':<16}  {'trials':>7}  {'failed':>7}  {'best':>9}  by"
        for entry in some:
            yield escape_text(_format_row(entry), width)
            yield f"      {format_computation(entry, width - 6)}"
        yield ""
    yield summarize_entries(entries)


def summarize_entries(entries: Sequence[WorkloadRecords]) -> str:
    """Count records, workloads and platforms in words."""
    records = sum(len(entry.records) + entry.wrong for entry in entries)
    workloads = len({(entry.workload, entry.identity) for entry in entries})
    platforms = len({entry.platform for entry in entries})
    return (
        f"{format_plural(records, 'record')} of {format_plural(workloads, 'workload')}"
        f" on {format_plural(platforms, 'platform')}"
    )


def list_entry_lines(entry: WorkloadRecords, width: int = WIDTH) -> Iterator[str]:
    """Yield the details of a workload on a platform: its best schedules, its failures."""
    yield escape_text(format_platform(entry.platform), width)
    yield f"  {format_computation(entry, width - 2)}"
    if entry.about is not None:
        yield escape_text(f"  reads {', '.join(entry.about.inputs)}", width)
    told_wrong = f", {entry.wrong} wrong" if entry.wrong else ""
    yield f"  {format_plural(len(entry.records), 'trial')}, {entry.failed} failed{told_wrong}"
    for record, measured_here in zip(entry.records[:_SHOWN], entry.here, strict=False):
        if record.error is None:
            yield ""
            row = (
                f"  {_format_time(record)}  {_format_maker(record)}  "
                f"{_format_origin(measured_here)} {record.measured}"
            )
            yield escape_text(row, width)
            yield from (
                escape_text(f"      {line}", width) for line in list_schedule_lines(record.schedule)
            )
    failures = Counter(record.error for record in entry.records if record.error is not None)
    if failures:
        yield ""
    for error, count in failures.most_common(_SHOWN):
        yield escape_text(f"  failed {format_plural(count, 'time')}: {error}", width)


def list_schedule_lines(text: str) -> Iterator[str]:
    """Yield the lines of a schedule: a template and its knobs, or the steps of a trace."""
    try:
        document = foreign.parse(text)
        lines = list(
            _list_knob_lines(document)
            if isinstance(document, dict)
            else _list_trace_lines(document)
        )
    except (ValueError, LookupError, TypeError):
        lines = [text]
    yield from lines


def to_json_table(entries: Sequence[WorkloadRecords]) -> list[dict[str, object]]:
    """Convert the table of `list_lines` to JSON values."""
    return [_list_fields(entry) for entry in entries]


def to_json_document(entries: Sequence[WorkloadRecords]) -> list[dict[str, object]]:
    """Convert all records of the entries to JSON values."""
    return [
        {**_list_fields(entry), "records": list(map(_describe_record, entry.records, entry.here))}
        for entry in entries
    ]


def format_platform(platform: Platform) -> str:
    """Describe the platform of records in one line."""
    target, versions, device = (
        _parse_platform_text(text) for text in (platform.target, platform.versions, platform.device)
    )
    target_parts = (target.get(name) for name in ("kind", "arch", "mcpu"))
    cores = target.get("num_cores", target.get("num-cores"))
    where = " ".join(str(name) for name in target_parts if name)
    of = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    machine = device.get("gpu") or device.get("cpu") or "a device that is not known"
    clock = f"; clock {device['clock']}" if "clock" in device else ""
    return f"{where or platform.target}, {cores} cores; {machine}; {of}{clock}"


def format_computation(entry: WorkloadRecords, width: int = WIDTH) -> str:
    """Describe the computation of a workload in at most `width` columns."""
    about = entry.about
    if about is None:
        return "what it computes was not written down"
    ops = " + ".join(name.removeprefix("nn.") for name in about.ops)
    gives = f" -> {escape_text(', '.join(about.outputs), width // 2)}"
    return escape_text(ops, width - len(gives)) + gives


def _format_row(entry: WorkloadRecords) -> str:
    best = entry.best
    time, by = (_format_time(best), _format_maker(best)) if best is not None else ("-", "-")
    by += ", claimed" if entry.claimed else ""
    trials = len(entry.records)
    return f"  {entry.workload:<16}  {trials:>7}  {entry.failed:>7}  {time:>9}  {by}"


def _format_time(record: Record) -> str:
    return format_seconds(record.median) + ("~" if record.cut else "")


def _format_origin(measured_here: bool) -> str:  # noqa: FBT001 -- a field
    return "measured here," if measured_here else "claimed,"


def _format_maker(record: Record) -> str:
    return f"{record.engine} on {record.implementation}"


def _list_knob_lines(document: Mapping[str, object]) -> Iterator[str]:
    yield f"template {document['template']}, version {document['version']}"
    knobs = document["knobs"]
    if isinstance(knobs, dict):
        yield " ".join(f"{name}={json.dumps(knobs[name])}" for name in sorted(knobs))


def _list_trace_lines(document: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the steps of a trace with their sampling decisions."""
    steps, decisions = document[0], dict(document[1])
    for place, (name, inputs, attributes, outputs) in enumerate(steps):
        decision = f" decided {json.dumps(decisions[place])}" if place in decisions else ""
        gives = f"{', '.join(map(str, outputs))} = " if outputs else ""
        arguments = ", ".join(str(argument) for argument in (*inputs, *attributes))
        yield f"{gives}{name}({arguments}){decision}"


def _list_fields(entry: WorkloadRecords) -> dict[str, object]:
    best = entry.best
    return {
        "workload": entry.workload, "about": entry.about and entry.about.json(),
        "target": _parse_platform_text(entry.platform.target),
        "versions": _parse_platform_text(entry.platform.versions),
        "device": _parse_platform_text(entry.platform.device), "trials": len(entry.records),
        "failed": entry.failed, "wrong": entry.wrong, "seconds": best and best.median,
        "engine": best and best.engine, "implementation": best and best.implementation,
        "claimed": entry.claimed,
    }  # fmt: skip


def _describe_record(record: Record, measured_here: bool) -> dict[str, object]:  # noqa: FBT001 -- a field
    sound = record.median < float("inf")
    return {
        "engine": record.engine, "implementation": record.implementation,
        "schedule": record.schedule, "seconds": list(record.seconds) if sound else [],
        "error": record.error, "cut": record.cut, "measured": record.measured,
        "session": record.session, "claimed": not measured_here,
    }  # fmt: skip


def _parse_platform_text(text: str) -> dict[str, object]:
    try:
        value = foreign.parse(text)
    except foreign.MalformedError:
        value = text
    return value if isinstance(value, dict) else {"text": value}
