"""Format two builds side by side as one HTML page."""

from collections.abc import Iterator
from typing import Final

from autopipe.comparison.build import BuiltTask, Time
from autopipe.comparison.difference import Difference, LatencyChange
from autopipe.comparison.excerpt import cut_alike
from autopipe.comparison.matching import TaskChange
from autopipe.comparison.tables import (
    NOTHING,
    Table,
    list_omitted_topics,
    list_tables,
    list_task_rows,
    list_unchanged_topics,
    time_text,
)
from autopipe.report.html.elements import Content, Markup, join_lines, make_element, make_text_block
from autopipe.report.html.page import build_document
from autopipe.report.html.tables import (
    Cell,
    TableRow,
    make_details,
    make_fact_list,
    make_ratio_cell,
    make_table,
    make_verdict_cell,
)

_ROOM: Final = 600
"""Largest number of characters of a value."""
_STEPS: Final = 400
"""Largest number of lines in the diff of a trace."""


def format_page(difference: Difference) -> str:
    """Format both builds as a page; changed rows are marked."""
    old, new = difference.old, difference.new
    title = f"{new.pipeline}: {'no differences' if difference.same else 'what changed'}"
    topics = [one for one in list_tables(difference) if one.title not in {"tasks", "latency"}]
    head = make_element(
        "header", make_element("h1", title),
        make_fact_list({"Old": f"{old.file}, {old.kind}", "New": f"{new.file}, {new.kind}",
               "The same": ", ".join(list_unchanged_topics(difference)),
               "Not compared": ", ".join(list_omitted_topics(difference))}),
    )  # fmt: skip
    sections = (
        _build_latency_section(difference),
        _build_task_section(difference),
        *map(_build_topic_section, topics),
    )
    return build_document(title, join_lines(head, *sections))


def _build_section(title: str, *contents: Content) -> Markup:
    return make_element("section", join_lines(make_element("h2", title.capitalize()), *contents))


def _build_topic_section(topic: Table) -> Markup:
    rows = (
        TableRow((row.name, *cut_alike(row.old, row.new, _ROOM), row.note)) for row in topic.rows
    )
    return _build_section(topic.title, make_table(topic.summary, ("", "old", "new", "note"), rows))


def _build_latency_section(difference: Difference) -> Markup | None:
    if not difference.latency:
        return None
    header = ("contender", "version", ">old", ">new", ">ratio", "verdict")
    rows = map(_build_latency_row, difference.latency)
    return _build_section("latency", make_table("Median of a run, and its spread", header, rows))


def _build_latency_row(change: LatencyChange) -> TableRow:
    old, new = change.versions
    version = old if old == new else f"{old} -> {new}"
    times = (
        _build_time_cell(change.old),
        _build_time_cell(change.new),
        _build_ratio_cell(change.old, change.new),
    )
    mark = "changed" if change.verdict.conclusive else None
    return TableRow((change.contender, version, *times, make_verdict_cell(change.verdict)), mark)


def _build_task_section(difference: Difference) -> Markup | None:
    if not difference.tasks:
        return None
    header = ("kernel", "old schedule", "new schedule", ">old call", ">new call", ">ratio",
              "verdict", "changed")  # fmt: skip
    caption = "All kernels; times as tuning measured them"
    return _build_section(
        "kernels", make_table(caption, header, map(_build_task_row, difference.tasks))
    )


def _build_task_row(change: TaskChange) -> TableRow:
    old, new = change.times
    state = "added" if change.old is None else "removed" if change.new is None else None
    change_text = state or ", ".join(entry.name for entry in change.changes)
    return TableRow((
        _build_kernel_cell(change), _format_schedule(change.old), _format_schedule(change.new),
        _build_time_cell(old), _build_time_cell(new), _build_ratio_cell(old, new),
        make_verdict_cell(change.verdict), change_text or ("steps" if change.steps else None),
    ), "changed" if change.differs else None)  # fmt: skip


def _build_kernel_cell(change: TaskChange) -> Content:
    """Build the name of a kernel with its changes in a collapsed block."""
    parts = list(_list_change_rows(change)) if change.differs else []
    return make_details(change.task.name, *parts) if parts else change.task.name


def _list_change_rows(change: TaskChange) -> Iterator[Markup]:
    for row in list_task_rows(change):
        note = f", {row.note}" if row.note else ""
        old, new = cut_alike(row.old, row.new, _ROOM)
        yield make_element("p", f"{row.name}: {old} -> {new}{note}")
        if row.lines:
            yield make_text_block(row.lines, most=_STEPS)


def _format_schedule(task: BuiltTask | None) -> str:
    if task is None:
        return NOTHING
    return f"{task.decisions.get('engine')} on {task.decisions.get('implementation')}"


def _build_time_cell(time: Time | None) -> Cell:
    return Cell(None) if time is None else Cell(time_text(time), time.median)


def _build_ratio_cell(old: Time | None, new: Time | None) -> Cell:
    return make_ratio_cell(new.median / old.median if old and new and old.median else None)
