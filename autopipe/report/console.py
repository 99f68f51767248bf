"""The reporter of a terminal: a line per finished stage, and a live line for the running one."""

import shutil
import textwrap
from typing import TYPE_CHECKING

from autopipe.pipeline.events import (
    BuildsFinished,
    BuildStarted,
    Event,
    Logged,
    Measured,
    PassTimes,
    Progress,
    RunFinished,
    StageCached,
    StageFailed,
    StageFinished,
    StageResumed,
    StageSkipped,
    StageStarted,
    TuningHeadroom,
    TuningProgress,
    Warn,
)
from autopipe.report.event_table import list_event_lines
from autopipe.report.output import Output
from autopipe.report.summary import RunSummary
from autopipe.report.wording import describe_event

if TYPE_CHECKING:
    from autopipe.report.live_line import LiveLine

_INDENT = " " * 11
_COLORS = {
    StageFinished: "32",
    StageCached: "2",
    StageSkipped: "2",
    StageFailed: "31",
    Warn: "33",
    RunFinished: "1",
    BuildStarted: "1",
    BuildsFinished: "1",
}


class Console:
    """Prints permanent lines, and below them a live line that is redrawn."""

    def __init__(self, out: Output, *, color: bool) -> None:
        self._out = out
        self._color = color
        self._live: LiveLine | None = None
        self._summary = RunSummary()

    def __call__(self, event: Event, /) -> None:
        """Show the event."""
        summary = self._summary.after(event)
        match event:
            case StageStarted(stage=stage):
                self._live = self._start_live_line(stage)
            case Progress() | TuningProgress():
                if self._live is None:  # it goes on after its stage, as copying a package does
                    self._live = self._start_live_line(event.stage)
                self._live.tell(event)
            case Measured():
                pass  # the final line of the stage has it
            case (
                Warn() | StageResumed() | PassTimes() | TuningHeadroom() | Logged()
            ):  # the stage goes on below it
                self._erase_live_line()
                self._write_event(event)
                if self._live is not None:
                    self._live.draw()
            case _:
                self._erase_live_line()
                self._live = None
                self._write_event(event)
                columns = shutil.get_terminal_size().columns - 1
                self._out.write("".join(f"{wrap_line(line, columns)}\n" for line in summary))

    def close(self) -> None:
        """Leave the live line of an interrupted stage, and the cursor below it."""
        if self._live is not None:
            self._live.leave()

    def _start_live_line(self, stage: str) -> "LiveLine":
        from autopipe.report.live_line import LiveLine  # rich: a run that is all cached needs none

        self._erase_live_line()
        live_line = LiveLine(self._out, stage)
        live_line.draw()
        return live_line

    def _erase_live_line(self) -> None:
        if self._live is not None:
            self._live.erase()

    def _write_event(self, event: Event) -> None:
        code = _COLORS.get(type(event))
        columns = shutil.get_terminal_size().columns - 1
        for line in list_event_lines(event):
            self._out.write(f"{wrap_line(line, columns)}\n")
        text = wrap_line(describe_event(event), columns)
        self._out.write(f"\x1b[{code}m{text}\x1b[0m\n" if self._color and code else f"{text}\n")


def wrap_line(text: str, columns: int) -> str:
    """Wrap a line between words to the width of a terminal."""
    if len(text) <= columns or columns <= 2 * len(_INDENT):
        return text
    return "\n".join(
        textwrap.wrap(
            text, columns, subsequent_indent=_INDENT, break_long_words=False,
            break_on_hyphens=False, replace_whitespace=False, drop_whitespace=True,
        )
    )  # fmt: skip
