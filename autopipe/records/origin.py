"""Which sessions are a store's own, where its tables were made before they told who measured."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autopipe.pipeline.attempt import read_note
from autopipe.store.canonical import unseal


def own_sessions(path: Path) -> set[str]:
    """Return the sessions that the store of these records has tuned with, as far as it knows.

    It knows them by its results of *tune* and by what interrupted runs have left. What a lock gave
    is no such result: it does not rest on a device.
    """
    root = path.parent.parent
    notes = [*_tuned(root), *(read_note(work) for work in root.glob("work/*"))]
    sessions = (note.get("session") for note in notes)
    return {session for session in sessions if isinstance(session, str)}


def _tuned(root: Path) -> Iterator[dict[str, Any]]:
    for path in root.glob("actions/*.json"):
        entry = _entry(path)
        action = entry.get("action")
        facts = action.get("facts") if isinstance(action, dict) else None
        if isinstance(facts, dict) and "device" in facts and entry["action"].get("stage") == "tune":
            yield _load(root / "objects" / str(entry.get("digest")) / "tuning.json")


def _entry(path: Path) -> dict[str, Any]:
    try:
        return unseal(path.read_bytes()) or {}
    except OSError:
        return {}


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
