"""The table of the times of passes."""

from collections.abc import Iterator
from typing import Final

from autopipe.pipeline.events import PassTimes
from autopipe.report.escape import escape_text

_SHOWN: Final = 0.01
"""Least share of the total time for a line of its own."""


def list_pass_times(event: PassTimes) -> Iterator[str]:
    """Yield a line for each pass, the slowest first; short ones are summed in the last line."""
    total = sum(one.seconds for one in event.passes)
    slowest = sorted(event.passes, key=lambda one: -one.seconds)
    listed_passes = [one for one in slowest if one.seconds >= _SHOWN * total]
    rest = slowest[len(listed_passes) :]
    yield f"{'ms':>10} {'runs':>6}  pass"
    for entry in listed_passes:
        yield f"{1e3 * entry.seconds:10.1f} {entry.runs:6}  {escape_text(entry.name)}"
    if rest:
        left, runs = sum(one.seconds for one in rest), sum(one.runs for one in rest)
        yield f"{1e3 * left:10.1f} {runs:6}  {len(rest)} others"
