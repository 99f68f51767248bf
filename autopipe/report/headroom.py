"""The table of the headroom that tuning left, for the terminal, Markdown and HTML."""

from collections.abc import Iterator, Sequence
from typing import Final

from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.report.escape import escape_text
from autopipe.report.units import format_seconds

COLUMNS: Final = ("task", ">share", ">untuned", ">tuned", ">bound", ">left", ">trials", "ended")
"""Names of the columns; a `>` aligns one to the right."""

SHOWN: Final = 8
"""Largest number of tasks with a row in a terminal."""

_NAME: Final = 12
"""Characters of a task's name there."""

_ENDED: Final = 20
"""Characters of the reason there: a row has 79 columns."""


def order_headroom(tasks: Sequence[TaskHeadroom]) -> list[TaskHeadroom]:
    """Sort tasks by headroom, largest first."""
    return sorted(tasks, key=lambda task: (-task.left, task.name))


def write_cells(task: TaskHeadroom) -> tuple[str, ...]:
    """Format the cells of all columns except the name and the reason of the end."""
    untuned_time = "-" if task.untuned is None else format_seconds(task.untuned)
    bound = format_seconds(task.bound) if task.bound else "-"
    shares = (f"{task.share:.1%}", f"{task.left:.1%}")
    return shares[0], untuned_time, format_seconds(task.tuned), bound, shares[1], str(task.trials)


def list_headroom(tasks: Sequence[TaskHeadroom]) -> Iterator[str]:
    """Yield the lines of the table: the tasks with the most headroom, and the sum of all others."""
    sorted_tasks = order_headroom(tasks)
    yield _format_line(*(name.removeprefix(">") for name in COLUMNS))
    for task in sorted_tasks[:SHOWN]:
        name = escape_text(task.name[-_NAME:], _NAME)  # names differ at their ends
        yield _format_line(name, *write_cells(task), escape_text(task.ended, _ENDED))
    if rest := sorted_tasks[SHOWN:]:
        share, left = sum(task.share for task in rest), sum(task.left for task in rest)
        trials = sum(task.trials for task in rest)
        name = f"{len(rest)} others"
        yield _format_line(name, f"{share:.1%}", "", "", "", f"{left:.1%}", str(trials), "")


def _format_line(*cells: str) -> str:
    name, share, untuned, tuned, bound, left, trials, reason = cells
    line = f"{name:<{_NAME}} {share:>6} {untuned:>7} {tuned:>7} {bound:>7} {left:>6} {trials:>6}"
    return f"{line}  {reason}".rstrip()
