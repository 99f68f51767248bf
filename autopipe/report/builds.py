"""The table of several builds with their results."""

from collections.abc import Iterator

from autopipe.pipeline.events import BuildResult, BuildsFinished
from autopipe.report.escape import escape_text
from autopipe.report.units import format_seconds
from autopipe.report.wording import PATH_LIMIT

_HEADER = ("build", "target", "result", "   time", "ratio to", "package")
_GAP = "  "


def list_builds(event: BuildsFinished) -> Iterator[str]:
    """Yield the lines of the table; empty columns are omitted."""
    rows = [_HEADER, *map(_list_cells, event.builds)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield _GAP.join(cells).rstrip()


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
