"""Stages, gates and warnings of a run."""

from autopipe.artifacts.benchmark import Outcome
from autopipe.report.html.elements import Markup, join_lines, make_element, to_markup
from autopipe.report.html.tables import Cell, TableRow, make_table
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_seconds

_STATES = {"failed": "bad", "interrupted": "bad", "finished": "good"}
_OUTCOMES = {Outcome.FAILED: "bad", Outcome.PASSED: "good"}


def write_warnings(view: BuildView) -> Markup:
    """Return all warnings, in order."""
    made = (
        make_element("li", make_element("b", one.stage), ": ", one.message)
        for one in view.report.warnings
    )
    found = join_lines(*made)
    return make_element("ul", found) if found else Markup()


def write_gates(view: BuildView) -> Markup:
    """Return what became of each gate."""
    rows = [
        TableRow((gate.gate, Cell(str(gate.outcome), mark=_OUTCOMES.get(gate.outcome)), gate.found))
        for gate in view.report.gates
    ]
    return (
        make_table("Gates", ("gate", "outcome", "measured and allowed"), rows) if rows else Markup()
    )


def write_stages(view: BuildView) -> Markup:
    """Return what became of each stage."""
    rows = []
    for stage in view.report.stages:
        time = "" if stage.seconds is None else format_seconds(stage.seconds)
        state = Cell(stage.state.replace("_", " "), mark=_STATES.get(stage.state))
        said = stage.error or stage.summary
        artifact = make_element("code", stage.digest[:12]) if stage.digest else to_markup("")
        rows.append(TableRow((stage.stage, state, Cell(time, stage.seconds), said, artifact)))
    header = ("stage", "state", ">time", "result", "artifact")
    return make_table("Stages", header, rows) if rows else Markup()
