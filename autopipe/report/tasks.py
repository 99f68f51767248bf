"""The table of tuning tasks."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size

from autopipe.report.escape import escape_lines, escape_text
from autopipe.report.op_info import format_shape, format_tensor, list_op_lines
from autopipe.report.units import format_count
from autopipe.tasks.task import Task

WIDTH = 80
_WHOLE = 10_000
_HEADER = ("#", "share", "calls", "FLOPs", "bytes", "kind")
_LONG = 10_000
"""Characters of a line of TIR."""
_GAP = "  "
_INDENT = "      "
_KINDS = {"out_elementwise_fusable": "out_ewise"}  # the one that is too long; TVM writes OutEWise


def choose_table_width() -> int:
    """Choose the width of a table on stdout: a terminal's width, at least `WIDTH`.

    In a pipe or a file it is unlimited.
    """
    return max(WIDTH, get_terminal_size().columns) if sys.stdout.isatty() else _WHOLE


def format_task_table(tasks: Sequence[Task], width: int = WIDTH) -> str:
    """Format each task in `width` columns: share, work, ops, shapes, reason of a drop."""
    return "\n".join([*list_table_lines(tasks, width), "", _summarize_tasks(tasks)])


@dataclass(frozen=True, slots=True)
class Prospects:
    """The engines and templates that may schedule a task."""

    rule: int | None
    """Position of the matching rule, by its estimated share; None if none matches."""
    engines: tuple[str, ...]
    """The engines that may search for a schedule; empty for a dropped task."""
    fallback: tuple[str, ...]
    """The engines that create one without a search."""
    templates: Mapping[str, str | None]
    """Its implementations with their templates."""


def list_task_lines(task: Task, schedules: Prospects, tir: str, width: int = WIDTH) -> list[str]:
    """List one task in full: its row, its ops and their data flow, its TIR."""
    room = width - len(_INDENT)
    detail_lines = [
        *list_op_lines(task, room),
        "",
        *(escape_text(line, room) for line in _list_prospect_lines(schedules)),
    ]
    below = [f"{_INDENT}{line}".rstrip() for line in detail_lines]
    return [*list_table_lines([task], width), "", *below, "", escape_lines(tir.rstrip(), _LONG)]


def _list_prospect_lines(schedules: Prospects) -> Iterator[str]:
    rule = "no rule" if schedules.rule is None else f"rule {schedules.rule}"
    yield f"engines: {', '.join(schedules.engines) or 'none'} ({rule})"
    yield f"fallback: {', '.join(schedules.fallback)}"
    for name, template in schedules.templates.items():
        yield f"implementation {name}: {f'template {template}' if template else 'no template'}"


def list_table_lines(tasks: Sequence[Task], width: int = WIDTH) -> list[str]:
    """List the lines of the table, without the summary."""
    cells = [_HEADER, *map(_list_cells, tasks)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = width - sum(widths) - len(_GAP) * len(widths)
    lines = [_format_line(_HEADER, widths) + "task"]
    for task, row in zip(tasks, cells[1:], strict=True):
        lines.append(_format_line(row, widths) + escape_text(task.name, room))
        lines += [
            _INDENT + escape_text(text, width - len(_INDENT))
            for text in _list_detail_lines(task, width)
        ]
    return lines


def _list_cells(task: Task) -> tuple[str, ...]:
    kind = escape_text(_KINDS.get(task.info.kind, task.info.kind), 12)
    return (
        str(task.index), f"{task.share:.1%}", str(task.calls), format_count(task.flops),
        format_count(task.bytes), kind,
    )  # fmt: skip


def _format_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    *numbers, kind = cells
    right = [cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)]
    return _GAP.join([*right, kind.ljust(widths[-1]), ""])


def _list_detail_lines(task: Task, width: int) -> Iterator[str]:
    """Yield the lines below a task: ops and shapes, on one line where there is room."""
    ops, shapes = ", ".join(task.info.names), _format_shapes(task)
    together = f"{ops}: {shapes}"
    if not ops:
        yield shapes
    elif len(_INDENT + together) <= width:
        yield together
    else:
        yield from (f"{ops}:", shapes)
    if task.dropped is not None:
        yield f"dropped: {task.dropped}"


def _format_shapes(task: Task) -> str:
    """Format the shapes; a common element type stands at the end."""
    kinds = {tensor.dtype for tensor in (*task.inputs, *task.outputs)}
    write = format_shape if len(kinds) == 1 else format_tensor
    read, output_text = (", ".join(map(write, tensors)) for tensors in (task.inputs, task.outputs))
    return f"{read} -> {output_text}" + (f" {kinds.pop()}" if len(kinds) == 1 else "")


def _summarize_tasks(tasks: Sequence[Task]) -> str:
    kept_tasks = [task for task in tasks if task.dropped is None]
    total = sum(task.flops * task.calls for task in tasks)
    share = sum(task.flops * task.calls for task in kept_tasks) / total if total else 0.0
    return (
        f"{len(tasks)} tasks, {len(kept_tasks)} kept: "
        f"{share:.1%} of {format_count(total)} FLOPs, "
        f"{sum(task.share for task in kept_tasks):.1%} of the estimated time"
    )
