"""A difference as a comment on a pull request, in GitHub's Markdown."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from autopipe.comparison.difference import Difference
from autopipe.comparison.excerpt import excerpt
from autopipe.comparison.tables import Row, Table, left, same, tables
from autopipe.report.escape import escape
from autopipe.report.markdown import code, table

LIMIT: Final = 65_536
"""Characters that GitHub takes; counted in bytes, to be sure."""

_ROOM: Final = 160
_STEPS: Final = 60
"""Steps that are shown of a trace."""


def write(difference: Difference, limit: int = LIMIT) -> str:
    """Write it in at most so many bytes; tables that are too long end with how much is left out."""
    sections = tables(difference)
    rows = max((len(section.rows) for section in sections), default=0)
    whole = _page(difference, sections, rows)
    if len(whole.encode()) <= limit:
        return whole

    def size(most: int) -> int:
        return len(_page(difference, sections, most).encode())

    return _page(difference, sections, max(bisect_right(range(rows), limit, key=size) - 1, 0))


def _page(difference: Difference, sections: list[Table], most: int) -> str:
    return "\n".join(_lines(difference, sections, most)) + "\n"


def _lines(difference: Difference, sections: list[Table], most: int) -> Iterator[str]:
    old, new = difference.old, difference.new
    yield f"### {code(new.pipeline)}: {'no differences' if difference.same else 'what changed'}"
    yield ""
    yield f"{code(old.file)} ({old.kind}) → {code(new.file)} ({new.kind})"
    for section in sections:
        yield ""
        yield f"**{section.title.capitalize()}**: {section.summary}"
        yield ""
        yield from _table(section, most)
    for label, topics in (
        ("The same", same(difference)),
        ("Not compared", left(difference)),
    ):
        if topics:
            yield ""
            yield f"{label}: {', '.join(topics)}."


def _table(section: Table, most: int) -> Iterator[str]:
    tasks = ("task",) if section.rows[0].subject else ()
    yield from table((*tasks, "", "old", "new", ""), _cells(section.rows[:most]))
    for row in section.rows[:most]:
        yield from _steps(row)
    if len(section.rows) > most:
        rest = len(section.rows) - most
        yield ""
        yield f"… and {rest} more of {len(section.rows)}; `autopipe diff` shows all."


def _steps(row: Row) -> Iterator[str]:
    """Yield what changed in a trace as a block that GitHub colours; no line can end it."""
    if row.lines:
        yield ""
        yield f"{code(row.subject)}, {row.name}:"
        yield ""
        yield "```diff"
        yield from (escape(line, _ROOM) for line in row.lines[:_STEPS])
        yield "```"
        if len(row.lines) > _STEPS:
            yield ""
            yield f"… and {len(row.lines) - _STEPS} more; `autopipe diff` shows them."


def _cells(rows: tuple[Row, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the rows; a task is named in the first of its own."""
    last = ""
    for row in rows:
        subject = (code(row.subject) if row.subject != last else "",) if row.subject else ()
        last = row.subject
        old, new = excerpt(row.old, row.new, _ROOM)
        yield (*subject, code(row.name), code(old), code(new), row.note)
