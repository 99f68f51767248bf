"""Why a stage runs: the difference between what it would do and what it did last."""

import json
import re
from collections.abc import Iterator
from typing import Final

from autopipe.store.canonical import Document

_DIGEST: Final = re.compile("[0-9a-f]{64}")


def changes(old: Document, new: Document) -> list[str]:
    """Say of every entry how it differs, as `params.trials changed from 64 to 128`.

    Inputs that are None on the new side are not known yet, and are left out.
    """
    before, after = dict(_flatten(old)), dict(_flatten(new))
    names = sorted(before.keys() | after.keys())
    unknown = {name for name in names if name.startswith("inputs.") and after.get(name, 1) is None}
    return [
        _describe(name, before, after)
        for name in names
        if name not in unknown and before.get(name, ...) != after.get(name, ...)
    ]


def since(last: Document | None, document: Document) -> list[str] | None:
    """Return the changes since the last action of a stage, None where there is none."""
    if last == {}:
        return ["what it did last is no longer in the store"]
    return None if last is None else changes(last, document)


def kind(document: Document) -> str:
    """Tell stages apart, and tuning from the reading of a lock in its place."""
    return " ".join([document["stage"], *document["sources"]])


def _flatten(document: Document, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _describe(name: str, before: Document, after: Document) -> str:
    group, _, stage = name.partition(".")
    if group == "inputs" and name in before and name in after:
        return f"the result of {stage} changed"
    if name not in before:
        return f"{name} is new: {_show(after[name])}"
    if name not in after:
        return f"{name} was {_show(before[name])} and is gone"
    return f"{name} changed from {_show(before[name])} to {_show(after[name])}"


def _show(value: object) -> str:
    """Write a value as the pipeline file does, and a digest in short."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] if _DIGEST.fullmatch(text) else text


def measured_before(stage: str) -> str:
    """Say why a stage that measures is not run again."""
    return f"nothing changed since it was measured; --force {stage} does it again"
