"""Describes what is wrong with a build: its worst failure, and what would let it pass."""

from collections.abc import Sequence

import numpy as np

from autopipe.artifacts.verification import CheckedCase, OutputComparison


def find_worst(checked: Sequence[CheckedCase]) -> CheckedCase | None:
    """Return the case with the largest error of those that fail; None if none fails."""
    failed = _list_failures(checked)
    return max(failed, key=_read_absolute_error)[0] if failed else None


def describe_worst(checked: Sequence[CheckedCase]) -> str | None:
    """Describe the largest error of the cases that fail; None if none fails."""
    failed = _list_failures(checked)
    if not failed:
        return None
    case, worst = max(failed, key=_read_absolute_error)
    message = f"output {worst.output!r} is wrong on {case.told}: {worst.failure}"
    if worst.max_abs is not None:
        message += f"; largest error {worst.max_abs:.3g}"
        message += f" ({worst.max_rel:.3g} relative)" if worst.max_rel is not None else ""
        message += f", allowed rtol {worst.tolerance.rtol:.3g} and atol {worst.tolerance.atol:.3g}"
    if len(failed) > 1:
        message += f"; {len(failed)} comparisons fail in all"
    return f"{message}; {_suggest_tolerance([output for _, output in failed])}"


def _list_failures(checked: Sequence[CheckedCase]) -> list[tuple[CheckedCase, OutputComparison]]:
    return [(case, output) for case in checked for output in case.outputs if output.failure]


def _read_absolute_error(failed: tuple[CheckedCase, OutputComparison]) -> float:
    return failed[1].max_abs or np.inf


def _suggest_tolerance(failed: Sequence[OutputComparison]) -> str:
    """Say which one number would let all of them pass."""
    settings = []
    for name, values in (
        ("atol", [output.enough_atol for output in failed]),
        ("rtol", [output.enough_rtol for output in failed]),
    ):
        enough = [value for value in values if value is not None]
        if len(enough) == len(values):
            settings.append(f"verify.{name}: {max(enough):g}")
    return f"{' or '.join(settings)} would pass" if settings else "no tolerance would pass"
