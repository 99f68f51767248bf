"""Format the outlook of a stage: one line for `plan`, sentences for `explain`."""

from collections.abc import Iterator, Sequence

from autopipe.pipeline.forecast import Outlook
from autopipe.report.escape import escape_text

_AFTER = "after "


def plan_row(outlook: Outlook, width: int) -> str:
    """Format the line of a stage: its state, and the first reason why it runs."""
    row = f"{outlook.stage:<10} {outlook.state:<7} "
    reason, other_count = _select_first_reason(outlook.why)
    suffix = f" (and {other_count} more)" if other_count else ""
    return (row + escape_text(reason, width - len(row) - len(suffix)) + suffix).rstrip()


def _select_first_reason(why: Sequence[str]) -> tuple[str, int]:
    """Return the first reason and the number of others; dependencies count only without reasons."""
    waits = [reason.removeprefix(_AFTER) for reason in why if reason.startswith(_AFTER)]
    reasons = [reason for reason in why if not reason.startswith(_AFTER)]
    if reasons:
        return reasons[0], len(reasons) - 1
    return (_AFTER + ", ".join(waits) if waits else ""), 0


def list_sentences(outlook: Outlook) -> Iterator[str]:
    """Yield the state of a stage, and each reason."""
    states = {
        "cached": "is in the store and would not run; this is what it depends on:",
        "skipped": "would not run:",
        "run": "would run:",
    }
    yield f"{outlook.stage} {states[outlook.state]}"
    yield from (f"  {reason}" for reason in outlook.why)
