"""The table below the line of an event: the times of passes, or the results of several builds."""

from collections.abc import Iterable, Iterator
from typing import Final

from autopipe.pipeline.events import BuildResult, BuildsFinished, Event, PassTimes, TuningHeadroom
from autopipe.report.escape import escape_text
from autopipe.report.headroom import list_headroom
from autopipe.report.units import format_seconds
from autopipe.report.wording import PATH_LIMIT

_HEADER: Final = ("build", "target", "result", "   time", "ratio to", "package")
_SHOWN: Final = 0.01
"""Least share of the total time of passes for a line of its own."""


def list_event_lines(event: Event) -> Iterable[str]:
    """List the lines of an event's table; most events have none."""
    if isinstance(event, BuildsFinished):
        return list_builds(event)
    if isinstance(event, TuningHeadroom):
        return list_headroom(event.tasks)
    return _list_pass_times(event) if isinstance(event, PassTimes) else ()


def list_builds(event: BuildsFinished) -> Iterator[str]:
    """Yield a line for each build; empty columns are omitted."""
    rows = [_HEADER, *map(_list_cells, event.builds)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _list_cells(build: BuildResult) -> tuple[str, ...]:
    code = f" ({build.exit_code})" if build.exit_code else ""
    competitor = escape_text(build.competitor or "")
    ratio = "" if build.ratio is None else f"{build.ratio:.2f} {competitor}"
    return (
        escape_text(build.build),
        escape_text(build.target),
        build.result.replace("_", " ") + code,
        "" if build.seconds is None else f"{format_seconds(build.seconds):>7}",
        ratio,
        escape_text(build.package or "", PATH_LIMIT),
    )


def _list_pass_times(event: PassTimes) -> Iterator[str]:
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
