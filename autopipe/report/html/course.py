"""The sections on stages, gates, warnings, failures and changes of a run."""

from collections.abc import Iterator
from typing import Final

from autopipe.artifacts.benchmark import Outcome
from autopipe.report.document import RunReport, TaskDifference
from autopipe.report.html.elements import Markup, join_lines, make_element, to_markup
from autopipe.report.html.tables import Cell, TableRow, make_ratio_cell, make_table, make_time_cell
from autopipe.report.html.view import BuildView
from autopipe.tasks.shares import format_percent_floored

_STATES = {"failed": "bad", "interrupted": "bad", "finished": "good"}
_OUTCOMES = {Outcome.FAILED: "bad", Outcome.PASSED: "good"}

_HEADER: Final = ("kernel", "old schedule", "new schedule", ">old call", ">new call", ">ratio")


def write_warnings(view: BuildView) -> Markup:
    """Write all warnings, in order."""
    items = (
        make_element("li", make_element("b", one.stage), ": ", one.message)
        for one in view.report.warnings
    )
    content = join_lines(*items)
    return make_element("ul", content) if content else Markup()


def write_gates(view: BuildView) -> Markup:
    """Write the outcome of each gate."""
    rows = [
        TableRow((gate.gate, Cell(str(gate.outcome), mark=_OUTCOMES.get(gate.outcome)), gate.found))
        for gate in view.report.gates
    ]
    return make_table("Gates", ("gate", "outcome", "measured and allowed"), rows)


def write_stages(view: BuildView) -> Markup:
    """Write the result of each stage."""
    rows = []
    for stage in view.report.stages:
        state = Cell(stage.state.replace("_", " "), mark=_STATES.get(stage.state))
        result = stage.error or stage.summary
        artifact = make_element("code", stage.digest[:12]) if stage.digest else to_markup("")
        time = make_time_cell(stage.seconds)
        rows.append(TableRow((stage.stage, state, time, result, artifact)))
    header = ("stage", "state", ">time", "result", "artifact")
    return make_table("Stages", header, rows)


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
        make_table("Kernels", _HEADER, map(_build_change_row, since.tasks)),
    )


def _build_change_row(task: TaskDifference) -> TableRow:
    old, new = task.old_seconds, task.new_seconds
    return TableRow((
        task.name, task.old or "new", task.new or "gone", make_time_cell(old), make_time_cell(new),
        make_ratio_cell(new / old if old and new else None),
    ), "changed" if task.old != task.new else None)  # fmt: skip


def write_failures(view: BuildView) -> Markup:
    """Write a row for each task that was not tuned, and each schedule that failed."""
    report = view.report
    rows = list(_list_failure_rows(report))
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


def _list_failure_rows(report: RunReport) -> Iterator[TableRow]:
    for task in report.tasks:
        if task.dropped is not None:
            yield TableRow((task.name, "not tuned", task.dropped))
        if task.failed:
            yield TableRow((task.name, f"{task.failed} of {task.trials} trials failed", ""))
        for problem in task.problems:
            yield TableRow((task.name, "problem", problem))
