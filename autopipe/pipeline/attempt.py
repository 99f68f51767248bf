"""The state of the last attempt of an action without a result: running, interrupted, or failed.

    work/<key>/               exists from the beginning of an attempt to its end
    work/<key>/session.json   how much of a budget it has spent, if it has one
    work/<key>/forced         whether it was forced; forced again, it goes on after an interruption
    logs/<stage>-<key>.failed the error it ended in, until the next attempt

A result leaves none of them.
"""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import StringConstraints

from autopipe import foreign
from autopipe.artifacts.document import parse_document
from autopipe.artifacts.numbers import Amount, Count
from autopipe.config.frozen import Frozen
from autopipe.config.problem import format_value
from autopipe.errors import AutopipeError, StoreError
from autopipe.processes.interrupt import find_exit_code
from autopipe.store import files, locks
from autopipe.store.canonical import pretty
from autopipe.store.store import Store

SESSION: Final = "session.json"
"""The `SpentBudget` of a stage with a budget, in its scratch directory."""

_FORCED: Final = "forced"

_BUG: Final = AutopipeError.exit_code

_LARGEST: Final = 1 << 20
"""Bytes of a note."""

_LONGEST: Final = 300
"""Maximum length of the error of a failed stage."""


class SpentBudget(Frozen, frozen=True):
    """How much of its budget a tuning session has spent."""

    session: Annotated[str, StringConstraints(pattern=r"^[0-9a-zA-Z-]{1,64}$")]
    """Its name, which marks its records in the store."""
    seconds: Amount
    trials: Count
    budget: Count
    """Trials that it may make."""


class Attempt(NamedTuple):
    """The last attempt of an action without a result."""

    state: Literal["running", "interrupted", "failed"]
    description: str
    """Description for the user."""


def describe_last_attempt(store: Store, stage: str, key: str) -> Attempt | None:
    """Describe the state of the last attempt; None if there was none."""
    lock, work = store.root / "locks" / key, store.root / "work" / key
    if lock.exists() and not locks.is_free(lock):
        return Attempt("running", f"{locks.describe_holder(lock)} is running it")
    spent_budget, note = describe_spent_budget(work), _read_note(_find_note_path(store, stage, key))
    kept_part = f"; {spent_budget} are kept" if spent_budget else ""
    if note.get("key") == key:
        return Attempt(
            "failed",
            f"failed on {format_value(note.get('when'))}: {_format_error_line(note)}{kept_part}",
        )
    if not work.is_dir():
        return None
    description = (
        f"interrupted after {spent_budget}; the rest is spent next"
        if spent_budget
        else "interrupted"
    )
    return Attempt("interrupted", description)


def begin_attempt(store: Store, stage: str, key: str, *, forced: bool) -> Path:
    """Create the scratch directory of an attempt.

    `forced` empties it, unless it continues an interrupted forced attempt.
    """
    work, note = store.work(key), _find_note_path(store, stage, key)
    with files.wrap_os_errors(store.root):
        if forced and (note.exists() or not (work / _FORCED).exists()):
            store.clear_work(key)
            (store.work(key) / _FORCED).touch()
        note.unlink(missing_ok=True)
    return work


def record_failure(store: Store, stage: str, key: str, error: Exception) -> None:
    """Write the error of a failed attempt beside the log; ignores errors of writing."""
    content = {
        "key": key, "error": str(error), "exit_code": find_exit_code(error),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }  # fmt: skip
    with suppress(OSError, StoreError):
        files.replace(_find_note_path(store, stage, key), pretty(content).encode(), store.tmp)


def describe_spent_budget(work: Path) -> str | None:
    """Format how much of its budget an attempt has spent; None if it has spent nothing."""
    spent = read_spent_budget(work)
    if spent is None:
        return None
    return f"{spent.trials} of {spent.budget} trials, {spent.seconds:.0f} s spent"


def read_spent_budget(work: Path) -> SpentBudget | None:
    """Read the journal of an attempt; None if there is none, or it is torn."""
    try:
        return parse_document(SpentBudget, files.read_or_discard(work / SESSION, _LARGEST) or b"")
    except (OSError, foreign.MalformedError):
        return None


def _format_error_line(note: dict[str, Any]) -> str:
    """Reduce an error to one printable line: of a bug's traceback the last, else the first."""
    lines = str(note.get("error", "")).strip().splitlines() or [""]
    line = lines[-1 if note.get("exit_code") == _BUG else 0][:_LONGEST]
    return "".join(char if char.isprintable() else "?" for char in line)


def _find_note_path(store: Store, stage: str, key: str) -> Path:
    return store.log(stage, key).with_suffix(".failed")


def _read_note(path: Path) -> dict[str, Any]:
    try:
        return foreign.parse_object(files.read_or_discard(path, _LARGEST) or b"{}")
    except (OSError, foreign.MalformedError):
        return {}
