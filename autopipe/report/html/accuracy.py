"""Outputs of the build compared with those of a reference."""

from collections.abc import Iterator

from autopipe.artifacts.verification import CaseOutcome, CheckedCase, OutputComparison, Verification
from autopipe.report.html.elements import Markup, element, lines
from autopipe.report.html.tables import Cell, TableRow, details, table
from autopipe.report.html.view import BuildView

_HEADER = ("output", "case", "outcome", ">part of the allowed error", ">largest absolute error",
           ">largest relative error", ">rtol", ">atol", "why it fails")  # fmt: skip


def write_accuracy(view: BuildView) -> Markup:
    """Return the worst case of each output, and all cases below."""
    checked = view.report.verification
    if checked is None:
        return Markup()
    pairs = [(case, one) for case in (*checked.cases, *checked.special) for one in case.outputs]
    skipped = [case.told for case in (*checked.cases, *checked.special) if case.skipped]
    return lines(
        element("p", _reference(checked)),
        table("Largest error by output", _HEADER, _worst(checked)) if pairs else None,
        *(element("p", warning, class_="warning") for warning in checked.warnings),
        details(f"All cases ({len(checked.cases) + len(checked.special)})",
                table("Errors by case", _HEADER, (_row(*pair) for pair in pairs)),
                element("p", f"Skipped: {', '.join(skipped)}") if skipped else None)
        if pairs else None,
    )  # fmt: skip


def _reference(checked: Verification) -> str:
    name = f"{checked.reference} {checked.reference_version}"
    rounded = checked.rounded_by
    off = "" if rounded is None else f" bfloat16 moves an output by {rounded:.2%} at most."
    return f"Compared with {name} on {checked.extent}.{off}"


def _worst(checked: Verification) -> Iterator[TableRow]:
    """Yield for each output the case that uses most of the allowed error, or fails."""
    found: dict[str, tuple[CheckedCase, OutputComparison]] = {}
    for case in checked.cases:
        for one in case.outputs:
            if one.output not in found or _error(one) > _error(found[one.output][1]):
                found[one.output] = (case, one)
    return (_row(*pair) for pair in found.values())


def _error(one: OutputComparison) -> tuple[bool, float]:
    return one.failure is not None, one.used or 0.0


def _row(case: CheckedCase, one: OutputComparison) -> TableRow:
    failed = one.failure is not None
    outcome = CaseOutcome.FAILED if failed else CaseOutcome.PASSED
    return TableRow((
        one.output, case.told, Cell(str(outcome), mark="bad" if failed else "good"),
        Cell(None if one.used is None else f"{one.used:.2%}", one.used),
        _error_cell(one.max_abs), _error_cell(one.max_rel),
        _error_cell(one.tolerance.rtol), _error_cell(one.tolerance.atol), one.failure,
    ))  # fmt: skip


def _error_cell(value: float | None) -> Cell:
    return Cell(None if value is None else f"{value:.3g}", value)
