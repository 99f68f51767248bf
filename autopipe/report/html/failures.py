"""The section on dropped tasks, failures and unsteady measurements."""

from collections.abc import Iterator

from autopipe.report.document import RunReport
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.tables import TableRow, make_table
from autopipe.report.html.view import BuildView
from autopipe.tasks.shares import format_percent_floored


def write_failures(view: BuildView) -> Markup:
    """Write a row for each task that was not tuned, and each schedule that failed."""
    report = view.report
    rows = list(_list_rows(report))
    table = make_table("Left out, failed or rejected", ("kernel", "what", "why"), rows)
    return join_lines(_describe_unsteady(report), table if rows else None)


def _describe_unsteady(report: RunReport) -> Markup | None:
    """Describe the share of the time without steady measurements."""
    if report.steady_share is None or report.steady_share >= 1:
        return None
    rest = (
        f"Repeats agree for {format_percent_floored(report.steady_share)} of the tuned "
        "kernels' time"
    )
    unverified_text = f"; {report.claimed} kernels have times that were not measured here"
    return make_element("p", f"{rest}{unverified_text if report.claimed else ''}.")


def _list_rows(report: RunReport) -> Iterator[TableRow]:
    for task in report.tasks:
        if task.dropped is not None:
            yield TableRow((task.name, "not tuned", task.dropped))
        if task.failed:
            yield TableRow((task.name, f"{task.failed} of {task.trials} trials failed", ""))
        for problem in task.problems:
            yield TableRow((task.name, "problem", problem))
