"""Format a difference for a terminal."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from autopipe.comparison.difference import Difference
from autopipe.comparison.excerpt import cut_alike
from autopipe.comparison.tables import Row, list_omitted_topics, list_tables, list_unchanged_topics
from autopipe.report.escape import escape_text

WIDTH: Final = 80
_PATH: Final = 4096
_STEPS: Final = 200
"""Largest number of steps of a trace."""
_STEP: Final = 1000
"""Largest number of characters of a step; reordering a large loop nest takes half of it."""


def list_lines(difference: Difference, width: int = WIDTH) -> Iterator[str]:
    """Yield lines of at most `width` columns, except for paths."""
    for side, build in (("old", difference.old), ("new", difference.new)):
        name = escape_text(build.pipeline, width // 2)
        yield f"{side}: {escape_text(build.file, _PATH)} ({build.kind} of {name})"
    if difference.old.kind is not difference.new.kind:
        kinds = f"a {difference.old.kind} and a {difference.new.kind}"
        yield f"{kinds}: only what both say is compared"
    for table in list_tables(difference):
        yield ""
        yield f"{table.title}: {table.summary}"
        subject = ""
        for row in table.rows:
            if row.subject != subject:
                subject = row.subject
                yield f"  {escape_text(subject, width - 2)}"
            yield from _format_row(row, "    " if subject else "  ", width)
            yield from format_steps(row.lines, width, marked=2)
    yield ""
    if difference.same:
        yield "no differences"
    if topics := list_unchanged_topics(difference):
        yield from _wrap_text(f"the same: {', '.join(topics)}", width)
    if topics := list_omitted_topics(difference):
        yield from _wrap_text(f"not compared: {', '.join(topics)}", width)


def _format_row(row: Row, indent: str, width: int) -> Iterator[str]:
    """Format a change on one line, or on three if it is too long."""
    name = escape_text(row.name, width - len(indent) - 1)
    note = f", {row.note}" if row.note else ""
    old, new = cut_alike(row.old, row.new, width - len(indent) - 5)
    line = f"{indent}{name}: {old} -> {new}{note}"
    if len(line) <= width:
        yield line
        return
    yield f"{indent}{name}:"
    yield f"{indent}     {old}"
    if len(indent) + 5 + len(new + note) <= width:
        yield f"{indent}  -> {new}{note}"
    else:
        yield from (f"{indent}  -> {new}", f"{indent}     {row.note}")


def format_steps(lines: Sequence[str], width: int, marked: int = 0) -> Iterator[str]:
    """Yield the steps of a trace; the first `marked` characters of each are diff marks."""
    for line in lines[:_STEPS]:
        yield from _wrap_step(line, width, marked)
    if len(lines) > _STEPS:
        yield f"        and {len(lines) - _STEPS} more; --format json has them all"


def _wrap_step(text: str, width: int, marked: int) -> list[str]:
    """Format a step of a trace on as many lines as needed."""
    behind = f"      {text[:marked]}"
    return wrap(
        escape_text(text[marked:], _STEP), width, initial_indent=behind, subsequent_indent=" " * 10,
        break_on_hyphens=False,
    )  # fmt: skip


def _wrap_text(text: str, width: int) -> list[str]:
    return wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
