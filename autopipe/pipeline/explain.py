"""Why a stage runs: the difference between what it would do and what was done before."""

import re
from collections.abc import Iterator
from typing import Final

from autopipe.errors import StoreError
from autopipe.store.canonical import Document
from autopipe.store.store import Store

_DIGEST: Final = re.compile("[0-9a-f]{64}")


def changes(old: Document, new: Document) -> list[str]:
    """Name every entry that differs, as `params.budget.trials: 64 -> 128`.

    Entries that are None on the new side are not known yet, and are left out.
    """
    before, after = dict(_flatten(old)), dict(_flatten(new))
    names = sorted(before.keys() | after.keys())
    unknown = {name for name in names if name.startswith("inputs.") and after.get(name, 1) is None}
    return [
        f"{name}: {_show(before, name)} -> {_show(after, name)}"
        for name in names
        if name not in unknown and before.get(name, ...) != after.get(name, ...)
    ]


def nearest(store: Store, document: Document) -> list[str] | None:
    """Return the changes since the most similar earlier action of this stage, None without one.

    Among equally similar ones the last used counts.
    """
    candidates = []
    for key in store.actions():
        try:
            entry = store.entry(key)
        except StoreError:  # damaged; a run will say so
            continue
        if entry is not None and _kind(entry.action) == _kind(document):
            difference = changes(entry.action, document)
            candidates.append((len(difference), -entry.used, difference))
    return min(candidates)[2] if candidates else None


def _kind(document: Document) -> tuple[object, ...]:
    """Tell stages apart, and tuning from the reading of a lock in its place."""
    return document["stage"], *document["sources"]


def _flatten(document: Document, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _show(flat: dict[str, object], name: str) -> str:
    if name not in flat:
        return "-"
    text = str(flat[name])
    return text[:12] if _DIGEST.fullmatch(text) else text
