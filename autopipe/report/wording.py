"""One line of text an event."""

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
from autopipe.report.escape import escape
from autopipe.report.units import plural, seconds
from autopipe.tasks.shares import Shares

INTERRUPTED = (130, 143)
"""Exit codes of a run that Ctrl-C or SIGTERM has ended."""

LOG_LIMIT = 2000
"""Characters of a line of the log."""

PATH_LIMIT = 5000
"""A path is shown whole; the system allows no longer one."""


def wording(event: Event) -> str:  # noqa: C901, PLR0912 -- a case an event
    """Say what happened, in ASCII but for names and messages."""
    match event:
        case StageStarted(stage=stage):
            text = row(stage, "started")
        case StageCached(stage=stage, fetched=fetched):
            text = row(stage, "cached", *(["from the remote", *_claims(stage)] if fetched else []))
        case StageSkipped(stage=stage, reason=reason):
            text = row(stage, "not run", reason)
        case StageResumed(stage=stage, after=after):
            text = row(stage, "resumed", f"after {escape(after)}")
        case StageFinished(stage=stage, seconds=spent, summary=summary):
            text = row(stage, "done", f"{seconds(spent):>7}", escape(summary))
        case StageFailed(stage=stage):
            text = row(stage, "failed")
        case Progress() | TuningProgress():
            text = row(event.stage, progress(event))
        case Logged(stage=stage, level=level, message=message):
            text = row(stage, level, escape(message, LOG_LIMIT))
        case PassTimes(stage=stage, passes=passes):
            spent = sum(one.seconds for one in passes)
            text = row(stage, "passes", f"{seconds(spent)} in {len(passes)} passes")
        case TuningHeadroom(stage=stage, tasks=tasks):
            left = sum(task.left for task in tasks)
            text = row(stage, "left", f"{left:.0%} of the time is above the bounds of the machine")
        case Measured(stage=stage):
            text = row(stage, "measured")
        case Tuned(stage=stage):
            text = row(stage, "tuned", _tuned(event))
        case Warn(stage=stage, message=message):
            text = f"warning: {escape(stage)}: {escape(message)}"
        case RunFinished():
            text = _end(event)
        case BuildStarted() | BuildsFinished():
            text = _several(event)
    return text


def describe_error(error: BaseException | str) -> str:
    """Return the text of an error. A traceback is left out: it names folders of this machine."""
    text = str(error) or type(error).__name__
    return text.rstrip().splitlines()[-1] if "Traceback (most recent" in text else text


def _claims(stage: str) -> list[str]:
    return ["its times are claims"] if stage == "tune" else []


def row(stage: str, *cells: str) -> str:
    """Line up what is said of a stage."""
    return f"{escape(stage):<10} {'  '.join(cells)}".rstrip()


def progress(event: Progress | TuningProgress, ago: float = 0.0) -> str:
    """Say how far a stage has come, of an event that was emitted so many seconds ago."""
    left = [] if event.remaining is None else _time_left(event.remaining - ago)
    if isinstance(event, Progress):
        counts = [] if event.done is None else [f"{event.done} of {event.total}"]
        return "  ".join([" ".join([*counts, escape(event.message)]), *left])
    cells = [f"{event.trials}/{event.budget} trials"]
    if event.latency is not None:
        cells.append(f"best {seconds(event.latency)}")
    if event.rate:
        cells.append(f"{event.rate:.1f}/s")
    cells += left
    if event.failed:
        cells.append(f"{event.failed} failed")
    if event.workers is not None:
        cells.append(plural(event.workers, "worker"))
    return "  ".join(cells)


def _time_left(value: float) -> list[str]:
    """Return the seconds that are left, in whole ones; nothing where they are spent."""
    return [f"{seconds(math.ceil(value))} left"] if value > 0 else []


def _tuned(event: Tuned) -> str:
    """Say what this store has tuned; the rest is what others say."""
    told = Shares(event.searched, event.measured, event.steady).told()
    claims = f"; {plural(event.claimed, 'time')} claimed, not measured"
    return f"{told} here" + (claims if event.claimed else "")


def _several(event: BuildStarted | BuildsFinished) -> str:
    """Say which build begins, or what became of all of them."""
    if isinstance(event, BuildStarted):
        which = f"{escape(event.build or '')} ({event.number} of {event.total})"
        return f"== {which}  {escape(event.target)}  {escape(event.file, PATH_LIMIT)}"
    counts = Counter(build.result.replace("_", " ") for build in event.builds)
    told = ", ".join(f"{number} {result}" for result, number in counts.items())
    code = f" (exit code {event.exit_code})" if event.exit_code else ""
    return f"{plural(len(event.builds), 'build')} in {seconds(event.seconds)}: {told}{code}"


def _end(event: RunFinished) -> str:
    if event.exit_code in INTERRUPTED:
        return f"interrupted after {seconds(event.seconds)} (exit code {event.exit_code})"
    if event.exit_code:
        text = f"failed after {seconds(event.seconds)} (exit code {event.exit_code})"
        reason = (event.error or "").partition("\n")[0].partition("; ")[0]  # the error follows
        return f"{text}: {escape(reason)}" if reason else text
    made = [escape(path, PATH_LIMIT) for path in (event.package, event.lock) if path is not None]
    unlocked = f"; {escape(event.unlocked)}" if event.unlocked else ""
    return f"done in {seconds(event.seconds)}" + (f": {', '.join(made)}" if made else "") + unlocked
