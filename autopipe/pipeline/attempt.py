"""What became of the last attempt of an action that has no result: it runs, broke off, or failed.

    work/<key>/               is there from the beginning of an attempt to its end
    work/<key>/session.json   how much of a budget it has spent, if it has one
    work/<key>/forced         whether it was forced; forced again, it goes on after an interruption
    logs/<stage>-<key>.failed the error it ended in, until the next attempt

A result leaves none of them.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.errors import AutopipeError, StoreError
from autopipe.processes.interrupt import find_exit_code
from autopipe.store import files, locks
from autopipe.store.canonical import pretty
from autopipe.store.store import Store

SESSION: Final = "session.json"
"""What a stage with a budget keeps in its scratch directory: `trials`, `budget`, `seconds`."""

_FORCED: Final = "forced"

_BUG: Final = AutopipeError.exit_code

_LARGEST: Final = 1 << 20
"""Bytes of a note."""

_LONGEST: Final = 300
"""Characters of an error that are told of a stage that failed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last attempt of an action that made no result."""

    state: Literal["running", "interrupted", "failed"]
    told: str
    """What it came to, for people."""


def describe_last_attempt(store: Store, stage: str, key: str) -> Attempt | None:
    """Return what became of the last attempt; None if there was none."""
    lock, work = store.root / "locks" / key, store.root / "work" / key
    if lock.exists() and not locks.is_free(lock):
        return Attempt("running", f"{locks.describe_holder(lock)} is running it")
    spent, note = describe_spent_budget(work), _read_note(_find_note_path(store, stage, key))
    kept = f"; {spent} are kept" if spent else ""
    if note.get("key") == key:
        return Attempt(
            "failed",
            f"failed on {format_value(note.get('when'))}: {_format_error_line(note)}{kept}",
        )
    if not work.is_dir():
        return None
    rest = f"interrupted after {spent}; the rest is spent next" if spent else "interrupted"
    return Attempt("interrupted", rest)


def begin_attempt(store: Store, stage: str, key: str, *, forced: bool) -> Path:
    """Return the scratch directory for an attempt.

    A force empties it, unless it goes on with one that was interrupted.
    """
    work, note = store.work(key), _find_note_path(store, stage, key)
    with files.wrap_os_errors(store.root):
        if forced and (note.exists() or not (work / _FORCED).exists()):
            store.clear_work(key)
            (store.work(key) / _FORCED).touch()
        note.unlink(missing_ok=True)
    return work


def record_failure(store: Store, stage: str, key: str, error: Exception) -> None:
    """Note what an attempt failed of; where even that can not be written, it is left."""
    content = {
        "key": key, "error": str(error), "exit_code": find_exit_code(error),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }  # fmt: skip
    with suppress(OSError, StoreError):
        files.replace(_find_note_path(store, stage, key), pretty(content).encode(), store.tmp)


def describe_spent_budget(work: Path) -> str | None:
    """Say how much of its budget an attempt has spent; None if it has spent nothing."""
    note = read_note(work)
    trials, budget, seconds = (note.get(name) for name in ("trials", "budget", "seconds"))
    if not all(type(number) in {int, float} for number in (trials, budget, seconds)):
        return None
    return f"{trials} of {budget} trials, {seconds:.0f} s spent"


def read_note(work: Path) -> dict[str, Any]:
    """Return how far an attempt has come, as far as it keeps that."""
    return _read_note(work / SESSION)


def _format_error_line(note: dict[str, Any]) -> str:
    """Return what an error says, in one harmless line; a bug says it in the last of its own."""
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
