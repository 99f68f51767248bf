"""The line of the stage that runs, drawn again by rich at the bottom of a terminal."""

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
"""Seconds between two looks at the clock."""


_ROOM = 2
"""Columns left free for the `^C` that a terminal shows: wrapped, it would have the line twice."""


class LiveLine:
    """What runs, for how long, and how far it has come; never wider than the terminal."""

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
        """Draw it below what has been written, and again with every tick of the clock."""
        self._live.start(refresh=True)

    def tell(self, event: Progress | TuningProgress) -> None:
        """Say how far the stage has come; the time left goes down until the next event."""
        self._event, self._told = event, time.monotonic()
        self._live.refresh()

    def erase(self) -> None:
        """Take it away; the next line is written where it was."""
        self._live.stop()

    def leave(self) -> None:
        """Leave it as it is, and the cursor on a line of its own."""
        self._live.transient = False
        self._live.stop()

    def _line(self) -> Text:
        """Return the line; a Text is no markup, whatever brackets a name has."""
        now = time.monotonic()
        elapsed = format_seconds(round(now - self._started))
        detail = "" if self._event is None else format_progress(self._event, now - self._told)
        line = Text(format_row(self._stage, f"{elapsed:>7}", detail))
        line.truncate(max(0, self._terminal.width - _ROOM), overflow="crop")
        return line


class _Terminal(Console):
    def show_cursor(self, show: bool = True) -> bool:  # noqa: FBT001, FBT002 -- as in rich
        """Leave the cursor as it is: a process that is killed could not bring it back."""
        del show
        return False
