"""Tabulate a difference as plain text, which is then formatted for a terminal or a browser.

The text is not escaped: names come from models, and are escaped when they are written.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from autopipe.comparison.build import ABSENT, Change, Time
from autopipe.comparison.difference import KNOBS, Difference, LatencyChange, Left
from autopipe.comparison.matching import TaskChange
from autopipe.report.units import format_seconds

NOTHING: Final = "-"
"""Stands for an absent value."""

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_SHORT: Final = 12
_ORDER: Final = (
    "outcome", "configuration", "target", "versions", "sources", "tasks", "size", "latency",
    "accuracy", "artifacts",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One difference."""

    subject: str
    """The name of its task; empty in tables of other topics."""
    name: str
    old: str
    new: str
    note: str = ""
    """A note in words."""
    lines: tuple[str, ...] = ()
    """The diff in detail, as lines with `+` and `-`."""


@dataclass(frozen=True, slots=True)
class Table:
    """The differences of one topic."""

    title: str
    summary: str
    rows: tuple[Row, ...]


def list_tables(difference: Difference) -> list[Table]:
    """Build a table for each changed topic, and for latency if both have it."""
    by_topic = {
        topic: Table(
            topic, f"{len(changes)} changed", tuple(_build_fact_row(topic, c) for c in changes)
        )
        for topic, changes in difference.facts.items()
        if changes
    }
    if difference.tasks is not None and any(task.differs for task in difference.tasks):
        rows = (row for task in difference.tasks if task.differs for row in list_task_rows(task))
        summary = f"{_count_task_changes(difference.tasks)}; times as tuning measured them"
        by_topic["tasks"] = Table("tasks", summary, tuple(rows))
    if difference.latency:
        latency_rows = tuple(map(_build_latency_row, difference.latency))
        by_topic["latency"] = Table("latency", "median of a run, and its spread", latency_rows)
    return [by_topic[topic] for topic in _ORDER if topic in by_topic]


def list_omitted_topics(difference: Difference) -> list[str]:
    """List the topics that are not compared although one side has them."""
    return [
        f"{topic} ({why.value})"
        for topic, why in difference.left.items()
        if why is not Left.NEITHER or topic == KNOBS
    ]


def list_unchanged_topics(difference: Difference) -> list[str]:
    """List the compared topics without changes."""
    topics = [topic for topic, changes in difference.facts.items() if not changes]
    if difference.tasks is not None and not any(task.differs for task in difference.tasks):
        topics.append(f"tasks ({_count_task_changes(difference.tasks)})")
    return topics


def _count_task_changes(tasks: tuple[TaskChange, ...]) -> str:
    added_count = sum(task.old is None for task in tasks)
    removed_count = sum(task.new is None for task in tasks)
    changed_count = sum(task.differs for task in tasks) - added_count - removed_count
    counts = {
        "added": added_count, "removed": removed_count, "changed": changed_count,
        "the same": len(tasks) - added_count - removed_count - changed_count,
    }  # fmt: skip
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"


def list_task_rows(change: TaskChange) -> Iterator[Row]:
    """Yield the changes of a task."""
    name = change.task.name
    if change.old is None:
        yield Row(name, "added", NOTHING, _format_decisions(change), "", change.steps)
    elif change.new is None:
        yield Row(name, "removed", _format_decisions(change), NOTHING, "", change.steps)
    else:
        if change.steps and all(entry.name != "schedule" for entry in change.changes):
            yield Row(name, "steps", NOTHING, NOTHING, "under the same digest", change.steps)
        for entry in change.changes:
            lines = change.steps if entry.name == "schedule" else ()
            yield Row(
                name, entry.name, _format_value(entry.old), _format_value(entry.new), "", lines
            )
        old, new = change.times
        if old is not None or new is not None:
            yield Row(name, "time", time_text(old), time_text(new), change.verdict or "")


def _format_decisions(change: TaskChange) -> str:
    decisions = change.task.decisions
    time = f", {time_text(change.task.time)}" if change.task.time else ""
    return f"{decisions.get('engine')} on {decisions.get('implementation')}{time}"


def _build_latency_row(change: LatencyChange) -> Row:
    old, new = change.versions
    versions = "" if old == new else f" {old} -> {new}"
    name = f"{change.contender}{versions}"
    return Row("", name, time_text(change.old), time_text(change.new), change.verdict)


def _build_fact_row(topic: str, change: Change) -> Row:
    old, new = (_format_topic_value(topic, value) for value in (change.old, change.new))
    if old == new:  # equal after formatting
        old, new = (json.dumps(value) for value in (change.old, change.new))
    return Row("", change.name, old, new, _format_growth(topic, change))


def _format_topic_value(topic: str, value: object) -> str:
    return (
        f"{value:,} bytes" if topic == "size" and isinstance(value, int) else _format_value(value)
    )


def _format_growth(topic: str, change: Change) -> str:
    old, new = change.old, change.new
    if topic != "size" or not isinstance(old, int) or not isinstance(new, int) or not old:
        return ""
    return f"{new / old - 1:+.1%}"


def time_text(time: Time | None) -> str:
    """Format a time with its spread."""
    if time is None:
        return NOTHING
    median = format_seconds(time.median)
    if time.low is None or time.high is None:
        return median
    low, high = format_seconds(time.low), format_seconds(time.high)
    unit = f" {median.rpartition(' ')[2]}"
    if low.endswith(unit) and high.endswith(unit):
        low, high = low.removesuffix(unit), high.removesuffix(unit)
    return f"{median} ({low} to {high})"


def _format_value(value: object) -> str:
    if value is ABSENT:
        return NOTHING
    if isinstance(value, Mapping) and isinstance(value.get("knobs"), Mapping):
        knobs = " ".join(f"{name}={_format_value(knob)}" for name, knob in value["knobs"].items())
        return f"{value.get('template')} {knobs}, version {value.get('version')}"
    if isinstance(value, str):
        return value[:_SHORT] if _DIGEST.fullmatch(value) else value
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
