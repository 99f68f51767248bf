"""Format each event as one line of text."""

import math
from collections import Counter

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
    Tuned,
    TuningHeadroom,
    TuningProgress,
    Warn,
)
from autopipe.report.escape import escape_text
from autopipe.report.units import format_plural, format_seconds
from autopipe.tasks.shares import Shares

INTERRUPTED = (130, 143)
"""Exit codes of a run that Ctrl-C or SIGTERM has ended."""

LOG_LIMIT = 2000
"""Largest number of characters of a log line."""

PATH_LIMIT = 5000
"""Largest number of characters of a path; the system allows no longer one."""


def describe_event(event: Event) -> str:  # noqa: C901, PLR0912 -- a case an event
    """Describe an event, in ASCII except for names and messages."""
    match event:
        case StageStarted(stage=stage):
            text = format_row(stage, "started")
        case StageCached(stage=stage, fetched=fetched):
            text = format_row(
                stage,
                "cached",
                *(["from the remote", *_list_claim_notes(stage)] if fetched else []),
            )
        case StageSkipped(stage=stage, reason=reason):
            text = format_row(stage, "not run", reason)
        case StageResumed(stage=stage, after=after):
            text = format_row(stage, "resumed", f"after {escape_text(after)}")
        case StageFinished(stage=stage, seconds=seconds, summary=summary):
            text = format_row(stage, "done", f"{format_seconds(seconds):>7}", escape_text(summary))
        case StageFailed(stage=stage):
            text = format_row(stage, "failed")
        case Progress() | TuningProgress():
            text = format_row(event.stage, format_progress(event))
        case Logged(stage=stage, level=level, message=message):
            text = format_row(stage, level, escape_text(message, LOG_LIMIT))
        case PassTimes(stage=stage, passes=passes):
            seconds = sum(one.seconds for one in passes)
            text = format_row(stage, "passes", f"{format_seconds(seconds)} in {len(passes)} passes")
        case TuningHeadroom(stage=stage, tasks=tasks):
            left = sum(task.left for task in tasks)
            text = format_row(
                stage, "left", f"{left:.0%} of the time is above the bounds of the machine"
            )
        case Measured(stage=stage):
            text = format_row(stage, "measured")
        case Tuned(stage=stage):
            text = format_row(stage, "tuned", _describe_tuned(event))
        case Warn(stage=stage, message=message):
            text = f"warning: {escape_text(stage)}: {escape_text(message)}"
        case RunFinished():
            text = _describe_end(event)
        case BuildStarted() | BuildsFinished():
            text = _describe_builds(event)
    return text


def describe_error(error: BaseException | str) -> str:
    """Format an error without traceback, which would reveal folders of this machine."""
    text = str(error) or type(error).__name__
    return text.rstrip().splitlines()[-1] if "Traceback (most recent" in text else text


def _list_claim_notes(stage: str) -> list[str]:
    return ["its times are unverified"] if stage == "tune" else []


def format_row(stage: str, *cells: str) -> str:
    """Format a line about a stage in aligned cells."""
    return f"{escape_text(stage):<10} {'  '.join(cells)}".rstrip()


def format_progress(event: Progress | TuningProgress, ago: float = 0.0) -> str:
    """Format the progress of a stage from an event that was emitted `ago` seconds ago."""
    left = [] if event.remaining is None else _time_left(event.remaining - ago)
    if isinstance(event, Progress):
        counts = [] if event.done is None else [f"{event.done} of {event.total}"]
        return "  ".join([" ".join([*counts, escape_text(event.message)]), *left])
    cells = [f"{event.trials}/{event.budget} trials"]
    if event.latency is not None:
        cells.append(f"best {format_seconds(event.latency)}")
    if event.rate:
        cells.append(f"{event.rate:.1f}/s")
    cells += left
    if event.failed:
        cells.append(f"{event.failed} failed")
    if event.workers is not None:
        cells.append(format_plural(event.workers, "worker"))
    return "  ".join(cells)


def _time_left(value: float) -> list[str]:
    """Format the remaining time in whole seconds; empty if it has passed."""
    return [f"{format_seconds(math.ceil(value))} left"] if value > 0 else []


def _describe_tuned(event: Tuned) -> str:
    """Describe the shares that this store has tuned, and the number of unverified times."""
    share_text = Shares(event.searched, event.measured, event.steady).format_line()
    claims = f"; {format_plural(event.claimed, 'time')} claimed, not measured"
    return f"{share_text} here" + (claims if event.claimed else "")


def _describe_builds(event: BuildStarted | BuildsFinished) -> str:
    """Describe the start of a build, or the results of all of them."""
    if isinstance(event, BuildStarted):
        which = f"{escape_text(event.build or '')} ({event.number} of {event.total})"
        return f"== {which}  {escape_text(event.target)}  {escape_text(event.file, PATH_LIMIT)}"
    counts = Counter(build.result.replace("_", " ") for build in event.builds)
    result_counts = ", ".join(f"{number} {result}" for result, number in counts.items())
    code = f" (exit code {event.exit_code})" if event.exit_code else ""
    return (
        f"{format_plural(len(event.builds), 'build')} in {format_seconds(event.seconds)}: "
        f"{result_counts}{code}"
    )


def _describe_end(event: RunFinished) -> str:
    if event.exit_code in INTERRUPTED:
        return f"interrupted after {format_seconds(event.seconds)} (exit code {event.exit_code})"
    if event.exit_code:
        text = f"failed after {format_seconds(event.seconds)} (exit code {event.exit_code})"
        reason = (event.error or "").partition("\n")[0].partition("; ")[0]  # the error follows
        return f"{text}: {escape_text(reason)}" if reason else text
    paths = [
        escape_text(path, PATH_LIMIT) for path in (event.package, event.lock) if path is not None
    ]
    lock_note = f"; {escape_text(event.unlocked)}" if event.unlocked else ""
    return (
        f"done in {format_seconds(event.seconds)}"
        + (f": {', '.join(paths)}" if paths else "")
        + lock_note
    )
