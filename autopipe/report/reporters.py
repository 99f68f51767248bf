"""Choose the reporter of a run, which prints its events on standard output."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TextIO

from autopipe.pipeline.events import Event
from autopipe.report.escape import escape_json
from autopipe.report.output import Output

Reporter = Callable[[Event], None]
"""Receives every event of a run, in order."""


class JsonLines:
    """Writes events as JSON lines for programs: one object a line, in ASCII, and nothing else."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def __call__(self, event: Event, /) -> None:
        """Write the event; `pipeline.events.parse` reads it back."""
        self._out.write(escape_json(event.model_dump_json(ensure_ascii=True)) + "\n")


@contextmanager
def open_reporter(*, json: bool, quiet: bool) -> Iterator[Reporter]:
    """Open the reporter for stdout: JSON lines, quiet, a live terminal or plain lines.

    Only its module is imported.
    """
    out = Output(sys.stdout)
    if json:
        yield JsonLines(out)
    elif quiet:
        from autopipe.report.plain import Quiet

        yield Quiet(out, Output(sys.stderr))
    elif is_live(sys.stdout, os.environ):
        from autopipe.report.console import Console

        with closing(Console(out, color=not os.environ.get("NO_COLOR"))) as console:
            yield console
    else:
        from autopipe.report.plain import Plain

        yield Plain(out)


def is_live(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether `stream` is a terminal that can move its cursor, so that lines can be redrawn."""
    return (
        stream is not None
        and stream.isatty()
        and environ.get("TERM", "dumb") != "dumb"
        and not environ.get("CI")
    )
