"""The section on changes since the last build of the same pipeline file in this store."""

from autopipe.report.document import RunReport, TaskDifference
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.tables import Cell, TableRow, make_table
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_seconds


def write_since(view: BuildView) -> Markup:
    """Write the changed inputs of each stage, and the kernels with changed schedules or times."""
    since = view.report.since
    if since is None:
        return Markup()
    if not since.fields and not since.stages and not since.tasks:
        return make_element("p", "Nothing: it is the build of the last run.")
    fields = map(TableRow, zip(since.fields, strict=True))
    return join_lines(
        make_table("Fields of the pipeline file", ("change",), fields) if since.fields else None,
        _build_stage_table(view.report), _build_kernel_table(since.tasks),
    )  # fmt: skip


def _build_stage_table(report: RunReport) -> Markup:
    stages = report.since.stages if report.since else {}
    rows = [TableRow((stage, change)) for stage in stages for change in stages[stage]]
    return make_table("What stages depend on", ("stage", "change"), rows) if rows else Markup()


def _build_kernel_table(tasks: tuple[TaskDifference, ...]) -> Markup:
    header = ("kernel", "old schedule", "new schedule", ">old call", ">new call", ">ratio")
    return make_table("Kernels", header, map(_build_row, tasks)) if tasks else Markup()


def _build_row(task: TaskDifference) -> TableRow:
    old, new = task.old_seconds, task.new_seconds
    ratio = new / old if old and new else None
    return TableRow((
        task.name, task.old or "new", task.new or "gone", _build_time_cell(old),
        _build_time_cell(new), Cell(None if ratio is None else f"{ratio:.2f}", ratio),
    ), "changed" if task.old != task.new else None)  # fmt: skip


def _build_time_cell(value: float | None) -> Cell:
    return Cell(None if value is None else format_seconds(value), value)
