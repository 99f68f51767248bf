"""Describe the largest error of a build, and the tolerance with which it would pass."""

from collections.abc import Sequence

import numpy as np

from autopipe.artifacts.verification import CheckedCase, OutputComparison


def find_worst(checked_cases: Sequence[CheckedCase]) -> CheckedCase | None:
    """Return the failed case with the largest error, or None."""
    failures = _list_failures(checked_cases)
    return max(failures, key=_read_absolute_error)[0] if failures else None


def describe_worst(checked_cases: Sequence[CheckedCase]) -> str | None:
    """Describe the largest error of the failed cases; None if all pass."""
    failures = _list_failures(checked_cases)
    if not failures:
        return None
    case, worst = max(failures, key=_read_absolute_error)
    message = f"output {worst.output!r} is wrong on {case.label}: {worst.failure}"
    if worst.max_abs is not None:
        message += f"; largest error {worst.max_abs:.3g}"
        message += f" ({worst.max_rel:.3g} relative)" if worst.max_rel is not None else ""
        message += f", allowed rtol {worst.tolerance.rtol:.3g} and atol {worst.tolerance.atol:.3g}"
    if len(failures) > 1:
        message += f"; {len(failures)} comparisons fail in all"
    return f"{message}; {_suggest_tolerance([output for _, output in failures])}"


def _list_failures(checked: Sequence[CheckedCase]) -> list[tuple[CheckedCase, OutputComparison]]:
    return [(case, output) for case in checked for output in case.outputs if output.failure]


def _read_absolute_error(failure: tuple[CheckedCase, OutputComparison]) -> float:
    return failure[1].max_abs or np.inf


def _suggest_tolerance(failed_outputs: Sequence[OutputComparison]) -> str:
    """Suggest the one setting with which all outputs would pass."""
    settings = []
    for name, values in (
        ("atol", [output.enough_atol for output in failed_outputs]),
        ("rtol", [output.enough_rtol for output in failed_outputs]),
    ):
        enough = [value for value in values if value is not None]
        if len(enough) == len(values):
            settings.append(f"verify.{name}: {max(enough):g}")
    return f"{' or '.join(settings)} would pass" if settings else "no tolerance would pass"
