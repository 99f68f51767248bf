"""A bisection as lines for people."""

from collections.abc import Iterator
from typing import Final

from autopipe.artifacts.model_nodes import name_kernel
from autopipe.bisection.bisection import BisectedCall, Bisection, CallDifference, Cause
from autopipe.config.dimension import append_sizes
from autopipe.report.escape import escape_text
from autopipe.report.units import format_plural

_WHOLE: Final = 10_000
"""Characters of a line that nothing cuts."""
_AROUND: Final = 3
"""Calls that are shown before and behind the first that is wrong."""


def list_bisection_lines(made: Bisection) -> Iterator[str]:
    """Yield what was compared, and the neighbours of the first kernel that is wrong."""
    yield (
        f"case {escape_text(append_sizes(made.case, made.sizes))}, {made.library}: "
        f"{_format_counts(made)}"
    )
    yield from (f"output {escape_text(text, _WHOLE)}" for text in made.wrong)
    yield from (f"note: {escape_text(text, _WHOLE)}" for text in made.notes)
    if made.first is None:
        return
    yield ""
    yield f"{'call':>6} {'plain loops':>12} {made.runtime or 'reference':>12}  kernel: nodes"
    for at in range(max(0, made.first - _AROUND), min(len(made.calls), made.first + _AROUND + 1)):
        call, mark = made.calls[at], ">" if at == made.first else " "
        plain, reference = _format_error(call.plain), _format_error(call.reference)
        text = escape_text(f"{name_kernel(call.kernel)}: {_format_nodes(call)}", _WHOLE)
        yield f"{mark}{at + 1:>5} {plain:>12} {reference:>12}  {text}"
    yield "errors are relative to the largest value; ! is more than is allowed"


def format_verdict(made: Bisection) -> str:
    """Return in a sentence which kernel is the first that is wrong, or that none is."""
    if made.first is None:
        if made.wrong:
            outputs = format_plural(len(made.wrong), "output")
            return f"wrong: {outputs}, though each kernel that can be compared agrees"
        return "none leaves: each kernel computes what it should"
    call = made.calls[made.first]
    where = escape_text(
        f"kernel {name_kernel(call.kernel)}, call {made.first + 1} of {len(made.calls)} "
        f"({_format_nodes(call)})",
        _WHOLE,
    )
    if made.cause is Cause.CRASH:
        return f"{where} does not return"
    if made.cause is Cause.REFERENCE:
        off = f"largest error {_format_numbers(call.reference)}"
        value = f"value {escape_text(call.tensor or '')} of {made.runtime}"
        own = "while it computes what its plain loops do" if call.plain else ""
        return f"{where} is the first that leaves {value}: {off}; {own}".rstrip("; ")
    off = f"largest error {_format_numbers(call.plain)}"
    return f"{where}, scheduled by {call.scheduled}, leaves its plain loops: {off}"


def _format_counts(made: Bisection) -> str:
    plain = sum(call.plain is not None for call in made.calls)
    values = sum(call.reference is not None for call in made.calls)
    with_values = f", {values} with values of {made.runtime}" if made.runtime else ""
    return f"{len(made.calls)} kernel calls, {plain} compared with their plain loops{with_values}"


def _format_nodes(call: BisectedCall) -> str:
    names = ", ".join(call.nodes) or "no node is known"
    return f"added for {names}" if call.added else names


def _format_error(difference: CallDifference | None) -> str:
    if difference is None:
        return "-"
    mark = "" if difference.agrees else "!"
    value = difference.max_rel
    return mark + ("not finite" if value is None else f"{value:.2g}")


def _format_numbers(difference: CallDifference | None) -> str:
    if difference is None or difference.max_abs is None or difference.max_rel is None:
        return "is not finite"
    return f"{difference.max_abs:.6g}, {difference.max_rel:.3g} of the largest expected value"
