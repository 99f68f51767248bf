"""The sections on stages, gates and warnings of a run."""

from autopipe.artifacts.benchmark import Outcome
from autopipe.report.html.elements import Markup, join_lines, make_element, to_markup
from autopipe.report.html.tables import Cell, TableRow, make_table, make_time_cell
from autopipe.report.html.view import BuildView

_STATES = {"failed": "bad", "interrupted": "bad", "finished": "good"}
_OUTCOMES = {Outcome.FAILED: "bad", Outcome.PASSED: "good"}


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
