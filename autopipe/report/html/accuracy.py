"""The section on accuracy: outputs of the build compared with those of a reference."""

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
"""Multiple of the tolerance from which an error is shown as a multiple."""


def write_accuracy(view: BuildView) -> Markup:
    """Write the worst case of each output, and all cases below."""
    verification = view.report.verification
    if verification is None:
        return Markup()
    pairs = [
        (case, one) for case in (*verification.cases, *verification.special) for one in case.outputs
    ]
    names = [case.label for case in (*verification.cases, *verification.special) if case.skipped]
    return join_lines(
        make_element("p", _describe_reference(verification)),
        _build_failure(verification),
        make_table("Largest error by output", _HEADER, _list_worst_rows(verification))
        if pairs
        else None,
        *(make_element("p", warning, class_="warning") for warning in verification.warnings),
        make_details(
            _describe_extent(verification),
            make_table("Errors by case", _HEADER, (_build_row(*pair) for pair in pairs)),
                make_element("p", f"Skipped: {', '.join(names)}") if names else None)
        if pairs else None,
    )  # fmt: skip


def _describe_reference(verification: Verification) -> str:
    name = f"{verification.reference} {verification.reference_version}"
    rounding = verification.rounded_by
    off = "" if rounding is None else f" bfloat16 moves an output by {rounding:.2%} at most."
    return f"Compared with {name} on {verification.extent}.{off}"


def _build_failure(verification: Verification) -> Markup:
    """Write the failure, and the command that finds its cause."""
    if verification.failure is None:
        return Markup()
    command = make_element("code", "autopipe bisect FILE")
    return join_lines(
        make_element("p", f"{verification.failure}.", class_="warning"),
        make_element(
            "p", "Next: ", command, " finds the first kernel that computes something else."
        ),
    )


def _describe_extent(verification: Verification) -> str:
    """Describe the number of cases in the full table."""
    special = sum(not case.skipped for case in verification.special)
    special_text = f", {format_plural(special, 'case')} with special values" if special else ""
    return f"All of them: {verification.extent}{special_text}"


def _list_worst_rows(verification: Verification) -> Iterator[TableRow]:
    """Yield the case with the largest error relative to its tolerance, for each output."""
    worst_cases: dict[str, tuple[CheckedCase, OutputComparison]] = {}
    for case in verification.binding:
        for output in case.outputs:
            if output.output not in worst_cases or _rank_error(output) > _rank_error(
                worst_cases[output.output][1]
            ):
                worst_cases[output.output] = (case, output)
    return (_build_row(*pair) for pair in worst_cases.values())


def _rank_error(output: OutputComparison) -> tuple[bool, float]:
    is_failure = output.failure is not None
    return is_failure, (output.max_abs or inf) if is_failure else (output.used or 0.0)


def _build_row(case: CheckedCase, output: OutputComparison) -> TableRow:
    is_failure = output.failure is not None
    outcome = CaseOutcome.FAILED if is_failure else CaseOutcome.PASSED
    return TableRow((
        output.output, case.label, Cell(str(outcome), mark="bad" if is_failure else "good"),
        Cell(_format_used_part(output.used), output.used),
        _build_error_cell(output.max_abs), _build_error_cell(output.max_rel),
        _build_error_cell(output.tolerance.rtol), _build_error_cell(output.tolerance.atol),
        output.failure,
    ))  # fmt: skip


def _format_used_part(share: float | None) -> str | None:
    """Format an error relative to its tolerance as a percentage, or as a multiple if large."""
    if share is None:
        return None
    return f"{share:.2%}" if share < _FAR else f"{share:.3g} times"


def _build_error_cell(value: float | None) -> Cell:
    return Cell(None if value is None else f"{value:.3g}", value)
