"""Format a difference as a comment on a pull request, in GitHub's Markdown."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from autopipe.comparison.difference import Difference
from autopipe.comparison.excerpt import cut_alike
from autopipe.comparison.tables import (
    Row,
    Table,
    list_omitted_topics,
    list_tables,
    list_unchanged_topics,
)
from autopipe.report.escape import escape_text
from autopipe.report.markdown import format_code, format_table

LIMIT: Final = 65_536
"""GitHub's limit of characters; counted in bytes, to be safe."""

_ROOM: Final = 160
_STEPS: Final = 60
"""Largest number of steps of a trace."""


def format_difference(difference: Difference, limit: int = LIMIT) -> str:
    """Format it in at most `limit` bytes; long tables are truncated with a count of the rest."""
    sections = list_tables(difference)
    rows = max((len(section.rows) for section in sections), default=0)
    full_page = _format_page(difference, sections, rows)
    if len(full_page.encode()) <= limit:
        return full_page

    def size(most: int) -> int:
        return len(_format_page(difference, sections, most).encode())

    return _format_page(
        difference, sections, max(bisect_right(range(rows), limit, key=size) - 1, 0)
    )


def _format_page(difference: Difference, sections: list[Table], most: int) -> str:
    return "\n".join(_list_lines(difference, sections, most)) + "\n"


def _list_lines(difference: Difference, sections: list[Table], most: int) -> Iterator[str]:
    old, new = difference.old, difference.new
    yield (
        f"### {format_code(new.pipeline)}: "
        f"{'no differences' if difference.same else 'what changed'}"
    )
    yield ""
    yield f"{format_code(old.file)} ({old.kind}) → {format_code(new.file)} ({new.kind})"
    for section in sections:
        yield ""
        yield f"**{section.title.capitalize()}**: {section.summary}"
        yield ""
        yield from _format_table(section, most)
    for label, topics in (
        ("The same", list_unchanged_topics(difference)),
        ("Not compared", list_omitted_topics(difference)),
    ):
        if topics:
            yield ""
            yield f"{label}: {', '.join(topics)}."


def _format_table(section: Table, most: int) -> Iterator[str]:
    tasks = ("task",) if section.rows[0].subject else ()
    yield from format_table((*tasks, "", "old", "new", ""), _list_cells(section.rows[:most]))
    for row in section.rows[:most]:
        yield from _format_steps(row)
    if len(section.rows) > most:
        rest = len(section.rows) - most
        yield ""
        yield f"… and {rest} more of {len(section.rows)}; `autopipe diff` shows all."


def _format_steps(row: Row) -> Iterator[str]:
    """Yield the changes of a trace as a `diff` block; no line in it can end the block."""
    if row.lines:
        yield ""
        yield f"{format_code(row.subject)}, {row.name}:"
        yield ""
        yield "```diff"
        yield from (escape_text(line, _ROOM) for line in row.lines[:_STEPS])
        yield "```"
        if len(row.lines) > _STEPS:
            yield ""
            yield f"… and {len(row.lines) - _STEPS} more; `autopipe diff` shows them."


def _list_cells(rows: tuple[Row, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the rows; the name of a task is only in its first row."""
    last = ""
    for row in rows:
        subject = (format_code(row.subject) if row.subject != last else "",) if row.subject else ()
        last = row.subject
        old, new = cut_alike(row.old, row.new, _ROOM)
        yield (*subject, format_code(row.name), format_code(old), format_code(new), row.note)
