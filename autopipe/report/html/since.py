"""The section on changes since the last build of the same pipeline file in this store."""

from typing import Final

from autopipe.report.document import TaskDifference
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.tables import TableRow, make_ratio_cell, make_table, make_time_cell
from autopipe.report.html.view import BuildView

_HEADER: Final = ("kernel", "old schedule", "new schedule", ">old call", ">new call", ">ratio")


def write_since(view: BuildView) -> Markup:
    """Write the changed inputs of each stage, and the kernels with changed schedules or times."""
    since = view.report.since
    if since is None:
        return Markup()
    if not since.fields and not since.stages and not since.tasks:
        return make_element("p", "Nothing: it is the build of the last run.")
    fields = map(TableRow, zip(since.fields, strict=True))
    stages = (TableRow((stage, change)) for stage, some in since.stages.items() for change in some)
    return join_lines(
        make_table("Fields of the pipeline file", ("change",), fields),
        make_table("What stages depend on", ("stage", "change"), stages),
        make_table("Kernels", _HEADER, map(_build_row, since.tasks)),
    )


def _build_row(task: TaskDifference) -> TableRow:
    old, new = task.old_seconds, task.new_seconds
    return TableRow((
        task.name, task.old or "new", task.new or "gone", make_time_cell(old), make_time_cell(new),
        make_ratio_cell(new / old if old and new else None),
    ), "changed" if task.old != task.new else None)  # fmt: skip
