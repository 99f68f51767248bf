"""Two builds side by side as one HTML page."""

from collections.abc import Iterator
from typing import Final

from autopipe.comparison.build import BuiltTask, Time
from autopipe.comparison.difference import Difference, LatencyChange
from autopipe.comparison.excerpt import excerpt
from autopipe.comparison.matching import TaskChange
from autopipe.comparison.tables import NOTHING, Table, left, list_task_rows, same, tables, time_text
from autopipe.comparison.timing import TimingVerdict
from autopipe.report.html.elements import Content, Markup, block, element, lines
from autopipe.report.html.page import document
from autopipe.report.html.tables import Cell, TableRow, details, facts, table

_MARKS: Final = {TimingVerdict.FASTER: "good", TimingVerdict.SLOWER: "bad"}
_ROOM: Final = 600
"""Characters of a value."""
_STEPS: Final = 400
"""Lines that are shown of what differs in a trace."""


def write(difference: Difference) -> str:
    """Write both builds as a page; rows that differ are marked."""
    old, new = difference.old, difference.new
    title = f"{new.pipeline}: {'no differences' if difference.same else 'what changed'}"
    topics = [one for one in tables(difference) if one.title not in {"tasks", "latency"}]
    head = element(
        "header", element("h1", title),
        facts({"Old": f"{old.file}, {old.kind}", "New": f"{new.file}, {new.kind}",
               "The same": ", ".join(same(difference)),
               "Not compared": ", ".join(left(difference))}),
    )  # fmt: skip
    sections = (_latency(difference), _tasks(difference), *map(_topic, topics))
    return document(title, lines(head, *sections))


def _section(title: str, *contents: Content) -> Markup:
    return element("section", lines(element("h2", title.capitalize()), *contents))


def _topic(topic: Table) -> Markup:
    rows = (TableRow((row.name, *excerpt(row.old, row.new, _ROOM), row.note)) for row in topic.rows)
    return _section(topic.title, table(topic.summary, ("", "old", "new", "note"), rows))


def _latency(difference: Difference) -> Markup | None:
    if not difference.latency:
        return None
    header = ("contender", "version", ">old", ">new", ">ratio", "verdict")
    rows = map(_latency_row, difference.latency)
    return _section("latency", table("Median of a run, and its spread", header, rows))


def _latency_row(change: LatencyChange) -> TableRow:
    old, new = change.versions
    version = old if old == new else f"{old} -> {new}"
    times = (_time(change.old), _time(change.new), _ratio(change.old, change.new))
    mark = "changed" if change.verdict.conclusive else None
    return TableRow((change.contender, version, *times, _verdict(change.verdict)), mark)


def _tasks(difference: Difference) -> Markup | None:
    if not difference.tasks:
        return None
    header = ("kernel", "old schedule", "new schedule", ">old call", ">new call", ">ratio",
              "verdict", "changed")  # fmt: skip
    caption = "All kernels; times as tuning measured them"
    return _section("kernels", table(caption, header, map(_task_row, difference.tasks)))


def _task_row(change: TaskChange) -> TableRow:
    old, new = change.times
    state = "added" if change.old is None else "removed" if change.new is None else None
    altered = state or ", ".join(entry.name for entry in change.changes)
    return TableRow((
        _kernel(change), _schedule(change.old), _schedule(change.new),
        _time(old), _time(new), _ratio(old, new), _verdict(change.verdict),
        altered or ("steps" if change.steps else None),
    ), "changed" if change.differs else None)  # fmt: skip


def _kernel(change: TaskChange) -> Content:
    """Return the name of a kernel, with all that differs folded away."""
    parts = list(_changes(change)) if change.differs else []
    return details(change.task.name, *parts) if parts else change.task.name


def _changes(change: TaskChange) -> Iterator[Markup]:
    for row in list_task_rows(change):
        note = f", {row.note}" if row.note else ""
        old, new = excerpt(row.old, row.new, _ROOM)
        yield element("p", f"{row.name}: {old} -> {new}{note}")
        if row.lines:
            yield block(row.lines, most=_STEPS)


def _schedule(task: BuiltTask | None) -> str:
    if task is None:
        return NOTHING
    return f"{task.decisions.get('engine')} on {task.decisions.get('implementation')}"


def _time(time: Time | None) -> Cell:
    return Cell(None) if time is None else Cell(time_text(time), time.median)


def _ratio(old: Time | None, new: Time | None) -> Cell:
    if old is None or new is None or not old.median:
        return Cell(None)
    ratio = new.median / old.median
    return Cell(f"{ratio:.2f}", ratio)


def _verdict(verdict: TimingVerdict | None) -> Cell:
    return Cell(verdict and str(verdict), mark=_MARKS.get(verdict) if verdict else None)
