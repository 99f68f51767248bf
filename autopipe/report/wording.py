"""One line of text an event."""

from autopipe.pipeline.events import (
    Event,
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
from autopipe.report.escape import escape
from autopipe.report.units import seconds

PATH_LIMIT = 5000
"""A path is shown whole; the system allows no longer one."""


def wording(event: Event) -> str:
    """Say what happened, in ASCII but for names and messages."""
    match event:
        case StageStarted(stage=stage):
            text = row(stage, "started")
        case StageCached(stage=stage):
            text = row(stage, "cached")
        case StageSkipped(stage=stage, reason=reason):
            text = row(stage, "not run", reason)
        case StageFinished(stage=stage, seconds=spent, summary=summary):
            text = row(stage, "done", f"{seconds(spent):>7}", escape(summary))
        case StageFailed(stage=stage):
            text = row(stage, "failed")
        case Progress() | TuningProgress():
            text = row(event.stage, progress(event))
        case Warn(stage=stage, message=message):
            text = f"warning: {escape(stage)}: {escape(message)}"
        case RunFinished():
            text = _end(event)
    return text


def row(stage: str, *cells: str) -> str:
    """Line up what is said of a stage."""
    return f"{escape(stage):<10} {'  '.join(cells)}".rstrip()


def progress(event: Progress | TuningProgress) -> str:
    """Say how far a stage has come."""
    if isinstance(event, Progress):
        return escape(event.message)
    cells = [f"{event.trials}/{event.budget} trials"]
    if event.latency is not None:
        cells.append(f"best {seconds(event.latency)}")
    cells.append(f"{event.rate:.1f}/s")
    if event.remaining is not None:
        cells.append(f"{seconds(event.remaining)} left")
    if event.failed:
        cells.append(f"{event.failed} failed")
    return "  ".join(cells)


def _end(event: RunFinished) -> str:
    if event.exit_code:
        return f"failed after {seconds(event.seconds)} (exit code {event.exit_code})"
    if event.package is None:
        return f"done in {seconds(event.seconds)}"
    return f"done in {seconds(event.seconds)}: {escape(event.package, PATH_LIMIT)}"
