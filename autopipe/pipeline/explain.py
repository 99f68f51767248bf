"""Explain why a stage runs: the difference between its action and the last one."""

import json
import re
from collections.abc import Iterator
from typing import Final

from autopipe.store.canonical import Document

_DIGEST: Final = re.compile("[0-9a-f]{64}")


def list_changes(old: Document, new: Document) -> list[str]:
    """List every entry that differs, such as `params.trials changed from 64 to 128`.

    Inputs that are None in the new document are not known yet, and are left out.
    """
    before, after = dict(_flatten_document(old)), dict(_flatten_document(new))
    names = sorted(before.keys() | after.keys())
    unknown_names = {
        name for name in names if name.startswith("inputs.") and after.get(name, 1) is None
    }
    return [
        _describe_change(name, before, after)
        for name in names
        if name not in unknown_names and before.get(name, ...) != after.get(name, ...)
    ]


def list_changes_since(last: Document | None, document: Document) -> list[str] | None:
    """List the changes since the last action of a stage; None if there was none."""
    if last == {}:
        return ["what it did last is no longer in the store"]
    return None if last is None else list_changes(last, document)


def name_action_kind(document: Document) -> str:
    """Return stage and sources of an action, which distinguish tuning from the replay of a lock."""
    return " ".join([document["stage"], *document["sources"]])


def _flatten_document(document: Document, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield from _flatten_document(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _describe_change(name: str, before: Document, after: Document) -> str:
    group, _, stage = name.partition(".")
    if group == "inputs" and name in before and name in after:
        return f"the result of {stage} changed"
    if name not in before:
        return f"{name} is new: {_format_value(after[name])}"
    if name not in after:
        return f"{name} was {_format_value(before[name])} and is gone"
    return f"{name} changed from {_format_value(before[name])} to {_format_value(after[name])}"


def _format_value(value: object) -> str:
    """Format a value like the pipeline file, and a digest by its prefix."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] if _DIGEST.fullmatch(text) else text


def explain_skip(stage: str) -> str:
    """Explain why a measuring stage is not run again."""
    return f"nothing changed since it was measured; --force {stage} does it again"
