"""Plain lines, for logs and pipes."""

import time

from autopipe.pipeline.events import (
    Event,
    Measured,
    Progress,
    RunFinished,
    TuningProgress,
    Warn,
)
from autopipe.report.escape import escape, line_of
from autopipe.report.event_table import table_of
from autopipe.report.output import Output
from autopipe.report.summary import RunSummary
from autopipe.report.wording import PATH_LIMIT, wording

_LONGEST = 4 * PATH_LIMIT
INTERVAL = 10.0
"""Seconds between two lines that count: a log is read afterwards."""


class Plain:
    """One line an event."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._next = 0.0
        self._summary = RunSummary()

    def __call__(self, event: Event, /) -> None:
        """Write the line of the event, and the summary after the last one."""
        summary = self._summary.after(event)
        if isinstance(event, Measured):  # the line of the stage's end says it
            return
        if isinstance(event, TuningProgress) or _is_counted(event):
            now = time.monotonic()
            if now < self._next:
                return
            self._next = now + INTERVAL
        for line in (*table_of(event), wording(event), *summary):
            self._out.write(line_of(line, _LONGEST) + "\n")


def _is_counted(event: Event) -> bool:
    return isinstance(event, Progress) and event.done is not None


class Quiet(Plain):
    """The path of the package on stdout, warnings on stderr, and nothing else."""

    def __init__(self, out: Output, err: Output) -> None:
        super().__init__(out)
        self._err = err

    def __call__(self, event: Event, /) -> None:
        """Write the warning, or the path."""
        if isinstance(event, Warn):
            self._err.write(line_of(wording(event), _LONGEST) + "\n")
        elif isinstance(event, RunFinished) and event.package is not None:
            self._out.write(escape(event.package, PATH_LIMIT) + "\n")
