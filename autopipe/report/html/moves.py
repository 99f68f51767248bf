"""The section on kernels that only transpose data."""

from typing import Final

from autopipe.report.document import TaskReport
from autopipe.report.html.elements import Markup
from autopipe.report.html.tables import Cell, TableRow, make_table, make_time_cell
from autopipe.report.html.tasks import sum_times, time_shares
from autopipe.report.html.view import BuildView

_TRANSPOSES: Final = frozenset({"permute_dims", "layout_transform"})
_FREE: Final = frozenset({"reshape", "squeeze", "expand_dims", "flatten"})
"""Operators that keep the order of elements."""


def write_moves(view: BuildView) -> Markup:
    """Write the transposes that remain in the build as separate kernels."""
    report = view.report
    added_tasks = {call.task for graph in report.graphs for call in graph.calls if call.added}
    times, shares = sum_times(report), time_shares(report)
    rows = [
        _build_row(task, time, share, added=at in added_tasks)
        for at, (task, time, share) in enumerate(zip(report.tasks, times, shares, strict=True))
        if _is_transpose(task)
    ]
    header = ("kernel", ">calls", ">all calls", ">share", "why", "nodes")
    return make_table("Kernels that only transpose", header, rows)


def _is_transpose(task: TaskReport) -> bool:
    ops = set(task.ops)
    return bool(ops & _TRANSPOSES) and ops <= _TRANSPOSES | _FREE


def _build_row(task: TaskReport, every: float | None, share: float, *, added: bool) -> TableRow:
    return TableRow((
        task.name, Cell(task.calls, task.calls), make_time_cell(every), Cell(f"{share:.1%}", share),
        "added where a layout changes" if added else "with nodes of the model",
        ", ".join(task.nodes),
    ))  # fmt: skip
