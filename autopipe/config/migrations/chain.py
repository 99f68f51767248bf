"""Brings the text of a pipeline file to the current version, step after step."""

import re
from collections.abc import Mapping
from pathlib import Path

from autopipe.config.document import Document, read
from autopipe.config.migrations import STEPS, VERSION, Step
from autopipe.config.problem import Diagnostic, Place, refusal, shown
from autopipe.errors import ConfigError

_FIELD = ("version",)


def upgrade(
    text: str, path: Path, steps: Mapping[int, Step] = STEPS, current: int = VERSION
) -> tuple[int, str]:
    """Return the version a text has, and the text in the current one, comments kept.

    Raises ConfigError, with the line, for a version that is newer, or that never was.
    """
    stated = _version(read(text), path, steps, current)
    for version in range(stated, current):
        text = _raised(steps[version](text), version, path)
    return stated, text


def _version(document: Document, path: Path, steps: Mapping[int, Step], current: int) -> int:
    if document.problems:
        raise refusal(path, document.problems)
    value = document.value.get("version") if isinstance(document.value, dict) else None
    if type(value) is int and all(version in steps for version in range(value, current)):
        if value <= current:
            return value
        message = f"{value} is newer than {current}, which this autopipe reads; upgrade autopipe"
    elif value is None:
        message = f"is missing, so nobody knows what to migrate from; now it is {current}"
    else:
        message = f"{shown(value)} is no version that ever was; now it is {current}"
    raise _refused(path, document.values.get(_FIELD, Place("", 1, 1)), message)


def _raised(text: str, version: int, path: Path) -> str:
    """Raise the number behind `version:`, where it was left as it was."""
    place = read(text).values.get(_FIELD, Place("", 1, 1))
    lines = text.splitlines(keepends=True)
    line, column = lines[place.line - 1], place.column - 1
    lines[place.line - 1] = line[:column] + re.sub(r"^\d+", str(version + 1), line[column:])
    raised = "".join(lines)
    document = read(raised)
    stated = document.value.get("version") if isinstance(document.value, dict) else None
    if document.problems or stated != version + 1:
        message = f"can not be raised to {version + 1} here; write it on a line of its own"
        raise _refused(path, place, message)
    return raised


def _refused(path: Path, place: Place, message: str) -> ConfigError:
    return refusal(path, [Diagnostic(place, _FIELD, message)])
