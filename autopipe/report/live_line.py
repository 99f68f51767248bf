"""The live line of the running stage, which rich redraws at the bottom of a terminal."""

import time
from typing import IO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autopipe.pipeline.events import Progress, TuningProgress
from autopipe.report.output import Output
from autopipe.report.units import format_seconds
from autopipe.report.wording import format_progress, format_row

TICK = 0.5
"""Seconds between two refreshes."""


_ROOM = 2
"""Columns left free for the `^C` of a terminal: wrapped, the line would appear twice."""


class LiveLine:
    """The running stage, its elapsed time and its progress; never wider than the terminal."""

    def __init__(self, out: Output, stage: str) -> None:
        self._stage = stage
        self._event: Progress | TuningProgress | None = None
        self._told = 0.0
        self._started = time.monotonic()
        self._terminal = _Terminal(
            file=cast("IO[str]", out), force_terminal=True, force_jupyter=False, color_system=None
        )
        self._live = Live(
            console=self._terminal, get_renderable=self._line, refresh_per_second=1 / TICK,
            transient=True, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip

    def draw(self) -> None:
        """Draw it below the written lines, and refresh it with every tick."""
        self._live.start(refresh=True)

    def tell(self, event: Progress | TuningProgress) -> None:
        """Update the progress of the stage; the remaining time counts down until the next event."""
        self._event, self._told = event, time.monotonic()
        self._live.refresh()

    def erase(self) -> None:
        """Erase it; the next line is written in its place."""
        self._live.stop()

    def leave(self) -> None:
        """Keep it, and move the cursor to the next line."""
        self._live.transient = False
        self._live.stop()

    def _line(self) -> Text:
        """Format the line; a Text has no markup, even with brackets in a name."""
        now = time.monotonic()
        duration = format_seconds(round(now - self._started))
        detail = "" if self._event is None else format_progress(self._event, now - self._told)
        line = Text(format_row(self._stage, f"{duration:>7}", detail))
        line.truncate(max(0, self._terminal.width - _ROOM), overflow="crop")
        return line


class _Terminal(Console):
    def show_cursor(self, show: bool = True) -> bool:  # noqa: FBT001, FBT002 -- as in rich
        """Keep the cursor visible: a killed process could not restore it."""
        del show
        return False
