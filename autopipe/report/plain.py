"""The reporter of plain lines, for logs and pipes."""

import math
import threading
import time
from typing import NamedTuple

from autopipe.pipeline.events import (
    Event,
    Measured,
    Progress,
    RunFinished,
    StageCached,
    StageFailed,
    StageFinished,
    StageSkipped,
    StageStarted,
    TuningProgress,
    Warn,
)
from autopipe.report.escape import escape_output_line, escape_text
from autopipe.report.event_table import list_event_lines
from autopipe.report.output import Output
from autopipe.report.summary import RunSummary
from autopipe.report.units import format_seconds
from autopipe.report.wording import PATH_LIMIT, describe_event, format_progress, format_row

_LONGEST = 4 * PATH_LIMIT
INTERVAL = 10.0
"""Seconds between two progress lines: a log is read afterwards."""


class Plain:
    """Writes one line per event, and one every `INTERVAL` seconds while a stage has none."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._summary = RunSummary()
        self._lock = threading.Lock()
        self._stage: _RunningStage | None = None
        self._next = self._written = -math.inf
        self._timer: threading.Timer | None = None

    def __call__(self, event: Event, /) -> None:
        """Write the line of the event, and the summary after the last one."""
        with self._lock:
            summary = self._summary.after(event)
            self._follow_stage(event)
            if isinstance(event, Measured):  # the final line of the stage has it
                return
            if _is_counted(event):
                if time.monotonic() < self._next:
                    return
                self._next = time.monotonic() + INTERVAL
            self._write_lines(*list_event_lines(event), describe_event(event), *summary)

    def close(self) -> None:
        """Stop the periodic lines."""
        if self._timer is not None:
            self._timer.cancel()

    def _write_lines(self, *lines: str) -> None:
        self._written = time.monotonic()
        for line in lines:
            self._out.write(escape_output_line(line, _LONGEST) + "\n")

    def _follow_stage(self, event: Event) -> None:
        """Track the running stage and its progress."""
        match event:
            case StageStarted(stage=stage):
                self._stage = _RunningStage(stage, time.monotonic())
                self._start_timer(INTERVAL)
            case Progress() | TuningProgress():
                if self._stage is not None:
                    self._stage = self._stage._replace(event=event, event_time=time.monotonic())
            case StageFinished() | StageFailed() | StageCached() | StageSkipped() | RunFinished():
                self._stage = None
                self.close()

    def _start_timer(self, delay: float) -> None:
        self.close()
        self._timer = threading.Timer(delay, self._write_if_silent)
        self._timer.daemon = True
        self._timer.start()

    def _write_if_silent(self) -> None:
        """Write the elapsed time of the stage, if no line was written for `INTERVAL` seconds."""
        with self._lock:
            if self._stage is None:
                return
            now = time.monotonic()
            if now >= self._written + INTERVAL:
                duration = format_seconds(round(now - self._stage.started))
                self._write_lines(
                    format_row(self._stage.name, f"{duration} so far", self._stage.detail(now))
                )
                self._next = now + INTERVAL  # it has the progress, too
            self._start_timer(self._written + INTERVAL - now)


class _RunningStage(NamedTuple):
    """The running stage and its progress."""

    name: str
    started: float
    event: Progress | TuningProgress | None = None
    event_time: float = 0.0

    def detail(self, now: float) -> str:
        """Format its progress."""
        return "" if self.event is None else format_progress(self.event, now - self.event_time)


def _is_counted(event: Event) -> bool:
    return isinstance(event, TuningProgress) or (
        isinstance(event, Progress) and event.done is not None
    )


class Quiet(Plain):
    """Writes the path of the package on stdout, warnings on stderr, and nothing else."""

    def __init__(self, out: Output, err: Output) -> None:
        super().__init__(out)
        self._err = err

    def __call__(self, event: Event, /) -> None:
        """Write the warning, or the path."""
        if isinstance(event, Warn):
            self._err.write(escape_output_line(describe_event(event), _LONGEST) + "\n")
        elif isinstance(event, RunFinished) and event.package is not None:
            self._out.write(escape_text(event.package, PATH_LIMIT) + "\n")
