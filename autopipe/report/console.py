"""A terminal: a line for each stage that is over, and one live line for the one that runs."""

import shutil
import textwrap
import time
import unicodedata
from threading import Event as Flag
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from autopipe.pipeline.events import (
    Event,
    Measured,
    Progress,
    RunFinished,
    StageCached,
    StageFailed,
    StageFinished,
    StageResumed,
    StageSkipped,
    StageStarted,
    TuningProgress,
    Warn,
)
from autopipe.report.output import Output
from autopipe.report.units import seconds
from autopipe.report.wording import progress, row, wording

TICK = 0.5
"""Seconds between two looks at the clock."""

_INDENT = " " * 11
_ERASE = "\r\x1b[K"
_COLORS = {
    StageFinished: "32",
    StageCached: "2",
    StageSkipped: "2",
    StageFailed: "31",
    Warn: "33",
    RunFinished: "1",
}


class Console:
    """Lines that stay, and below them one that is drawn again and again."""

    def __init__(self, out: Output, *, color: bool) -> None:
        self._out = out
        self._color = color
        self._lock = Lock()
        self._over = Flag()
        self._stage: str | None = None
        self._detail = ""
        self._started = 0.0
        self._clock = Thread(target=self._tick, daemon=True)

    def __call__(self, event: Event, /) -> None:
        """Show the event."""
        with self._lock:
            match event:
                case StageStarted(stage=stage):
                    self._stage, self._detail = stage, ""
                    self._started = time.monotonic()
                case Progress() | TuningProgress():
                    self._detail = progress(event)
                case Measured():
                    return  # the line of the stage's end says it
                case _:
                    if not isinstance(event, Warn | StageResumed):
                        self._stage = None
                    self._out.write(f"{_ERASE}{self._paint(event)}\n")
            self._draw()

    def __enter__(self) -> Self:
        """Start the clock of the live line."""
        self._clock.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Stop the clock and leave the cursor on a line of its own."""
        self._over.set()
        self._clock.join()
        if self._stage is not None:
            self._out.write("\n")

    def _tick(self) -> None:
        while not self._over.wait(TICK):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._stage is None:
            return
        elapsed = seconds(round(time.monotonic() - self._started))
        line = row(self._stage, f"{elapsed:>7}", self._detail)
        self._out.write(_ERASE + fit(line, shutil.get_terminal_size().columns - 1))

    def _paint(self, event: Event) -> str:
        code = _COLORS.get(type(event))
        width = shutil.get_terminal_size().columns - 1
        text = fold(wording(event), width)
        return f"\x1b[{code}m{text}\x1b[0m" if self._color and code else text


def fold(text: str, columns: int) -> str:
    """Break a line between words where the terminal would break it within one."""
    if len(text) <= columns or columns <= 2 * len(_INDENT):
        return text
    return "\n".join(
        textwrap.wrap(
            text, columns, subsequent_indent=_INDENT, break_long_words=False,
            break_on_hyphens=False, replace_whitespace=False, drop_whitespace=True,
        )
    )  # fmt: skip


def fit(text: str, columns: int) -> str:
    """Cut a line to what a terminal shows in `columns`; wide characters take two."""
    used = 0
    for at, char in enumerate(text):
        used += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used > columns:
            return text[:at]
    return text
