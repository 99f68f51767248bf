"""Outputs of the build compared with those of a reference."""

from collections.abc import Iterator
from math import inf

from autopipe.artifacts.verification import CaseOutcome, CheckedCase, OutputComparison, Verification
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.tables import Cell, TableRow, make_details, make_table
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_plural

_HEADER = ("output", "case", "outcome", ">part of the allowed error", ">largest absolute error",
           ">largest relative error", ">rtol", ">atol", "why it fails")  # fmt: skip


_FAR = 10.0
"""Times the allowed error."""


def write_accuracy(view: BuildView) -> Markup:
    """Return the worst case of each output, and all cases below."""
    checked = view.report.verification
    if checked is None:
        return Markup()
    pairs = [(case, one) for case in (*checked.cases, *checked.special) for one in case.outputs]
    skipped = [case.told for case in (*checked.cases, *checked.special) if case.skipped]
    return join_lines(
        make_element("p", _describe_reference(checked)),
        _build_failure(checked),
        make_table("Largest error by output", _HEADER, _list_worst_rows(checked))
        if pairs
        else None,
        *(make_element("p", warning, class_="warning") for warning in checked.warnings),
        make_details(
            _describe_extent(checked),
            make_table("Errors by case", _HEADER, (_build_row(*pair) for pair in pairs)),
                make_element("p", f"Skipped: {', '.join(skipped)}") if skipped else None)
        if pairs else None,
    )  # fmt: skip


def _describe_reference(checked: Verification) -> str:
    name = f"{checked.reference} {checked.reference_version}"
    rounded = checked.rounded_by
    off = "" if rounded is None else f" bfloat16 moves an output by {rounded:.2%} at most."
    return f"Compared with {name} on {checked.extent}.{off}"


def _build_failure(checked: Verification) -> Markup:
    """Return what fails, and how its cause is found."""
    if checked.failure is None:
        return Markup()
    command = make_element("code", "autopipe bisect FILE")
    return join_lines(
        make_element("p", f"{checked.failure}.", class_="warning"),
        make_element(
            "p", "Next: ", command, " finds the first kernel that computes something else."
        ),
    )


def _describe_extent(checked: Verification) -> str:
    """Count the cases that the table of all has."""
    special = sum(not case.skipped for case in checked.special)
    more = f", {format_plural(special, 'case')} with special values" if special else ""
    return f"All of them: {checked.extent}{more}"


def _list_worst_rows(checked: Verification) -> Iterator[TableRow]:
    """Yield for each output the case that fails most, or uses most of the allowed error."""
    found: dict[str, tuple[CheckedCase, OutputComparison]] = {}
    for case in checked.binding:
        for one in case.outputs:
            if one.output not in found or _rank_error(one) > _rank_error(found[one.output][1]):
                found[one.output] = (case, one)
    return (_build_row(*pair) for pair in found.values())


def _rank_error(one: OutputComparison) -> tuple[bool, float]:
    failed = one.failure is not None
    return failed, (one.max_abs or inf) if failed else (one.used or 0.0)


def _build_row(case: CheckedCase, one: OutputComparison) -> TableRow:
    failed = one.failure is not None
    outcome = CaseOutcome.FAILED if failed else CaseOutcome.PASSED
    return TableRow((
        one.output, case.told, Cell(str(outcome), mark="bad" if failed else "good"),
        Cell(_format_used_part(one.used), one.used),
        _build_error_cell(one.max_abs), _build_error_cell(one.max_rel),
        _build_error_cell(one.tolerance.rtol), _build_error_cell(one.tolerance.atol), one.failure,
    ))  # fmt: skip


def _format_used_part(used: float | None) -> str | None:
    """Write a part of the allowed error; what is far beyond it as a multiple."""
    if used is None:
        return None
    return f"{used:.2%}" if used < _FAR else f"{used:.3g} times"


def _build_error_cell(value: float | None) -> Cell:
    return Cell(None if value is None else f"{value:.3g}", value)
