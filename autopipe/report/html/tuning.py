"""The section on tuning: time of all tuned kernels with the best schedules over time."""

from collections.abc import Sequence
from typing import Final

from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.report.document import TuningCourse, TuningCurve
from autopipe.report.headroom import COLUMNS, order_headroom, write_cells
from autopipe.report.html.elements import Markup, join_lines, join_markup, make_chart, make_element
from autopipe.report.html.tables import Cell, TableRow, make_table, make_time_cell
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_seconds

_COLOURS: Final = 5
"""Number of colours in the style sheet, which repeat."""


def write_tuning(view: BuildView) -> Markup:
    """Draw the curves of all engines, and tabulate their figures."""
    course = view.report.tuning
    if course is None:
        return Markup()
    text = f"Tuning took {format_seconds(course.seconds)}: {course.ended}. "
    return join_lines(
        make_element("p", f"{text}A curve is the time of all tuned kernels with the best "
                          "schedules so "
                     "far, from the first time of each."),
        _draw_chart(course),
        _build_engine_table(course),
        _build_headroom_table(view.report.headroom),
    )  # fmt: skip


def _build_headroom_table(tasks: Sequence[TaskHeadroom]) -> Markup:
    """Tabulate the headroom of each task."""
    rows = []
    for task in order_headroom(tasks):
        values = (task.share, task.untuned, task.tuned, task.bound, task.left, task.trials)
        cells = map(Cell, write_cells(task), values)
        rows.append(TableRow((task.name, *cells, task.ended)))
    return make_table("Left to gain", COLUMNS, rows)


def _draw_chart(course: TuningCourse) -> Markup:
    points = [point for curve in course.curves for point in curve.points]
    last = max(at for at, _ in points) or 1.0
    lowest, highest = min(y for _, y in points), max(y for _, y in points)
    spread = highest - lowest or 1.0
    paths = [
        make_element("path", d=_format_steps(curve, last, lowest, spread),
                     class_=f"line{at % _COLOURS}", vector_effect="non-scaling-stroke")
        for at, curve in enumerate(course.curves)
    ]  # fmt: skip
    ends = (format_seconds(lowest), f"after {format_seconds(last)}")
    return make_chart(format_seconds(highest), join_lines(*paths), ends, height=220)


def _format_steps(curve: TuningCurve, last: float, lowest: float, spread: float) -> Markup:
    """Format a step curve that falls at each better schedule."""
    first, *rest = (
        (100 * at / last, 2 + 96 * (1 - (y - lowest) / spread)) for at, y in curve.points
    )
    parts = [f"M{first[0]:.2f} {first[1]:.2f}", *(f"H{x:.2f}V{y:.2f}" for x, y in rest), "H100"]
    return Markup("".join(parts))


def _build_engine_table(course: TuningCourse) -> Markup:
    rows = (_build_row(at, curve) for at, curve in enumerate(course.curves))
    header = ("engine", ">trials", ">failed", ">at first", ">best so far", ">last gain after")
    return make_table("Engines", header, rows)


def _build_row(at: int, curve: TuningCurve) -> TableRow:
    (_, first), (last_gain, best) = curve.points[0], curve.points[-1]
    line = make_element("path", d="M0 5H20", class_=f"line{at % _COLOURS}")
    key = make_element("svg", line, class_="key", width=20, height=10, aria_hidden="true")
    return TableRow((
        join_markup(key, " ", curve.engine),
        Cell(curve.trials, curve.trials), Cell(curve.failed, curve.failed),
        make_time_cell(first), make_time_cell(best), make_time_cell(last_gain),
    ))  # fmt: skip
