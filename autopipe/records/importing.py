"""Takes over records from files, whatever tool wrote them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopipe.errors import ConfigError
from autopipe.records import autotvm, lines, metaschedule
from autopipe.records.merge import Taken, plant, take
from autopipe.records.store import Store


@dataclass(frozen=True, slots=True)
class Brought:
    """What a file had for us."""

    what: str
    """What it is that was added."""
    added: int
    known: int
    left_out: Mapping[str, int]
    """How many were left out, by why."""


def bring(store: Store, source: Path, target: str | None) -> Brought:
    """Take over a file or a MetaSchedule folder; `target` is JSON that a database must be for.

    Raises ConfigError for what can not be taken over, and StoreError.
    """
    if source.is_dir():
        database = metaschedule.read(source, _target(target))
        return _brought("seed", take(store, database.found), database.left_out)
    if target is not None:
        raise ConfigError(f"--target is for MetaSchedule databases, {source} is a file")
    text = _text(source)
    first = _first(text, source)
    autotvm.refuse_ansor(first, source)
    if "input" in first and "config" in first:
        log = autotvm.read(text)
        return _brought("seed", plant(store, log.seeds), log.left_out)
    if "checksum" not in first:
        raise ConfigError(f"{source}: neither `autopipe records export` nor AutoTVM wrote this")
    found, bad = lines.read(text)
    return _brought("record", take(store, found), _told(bad, source))


def _brought(what: str, taken: Taken, left_out: Mapping[str, int]) -> Brought:
    return Brought(what, taken.added, taken.known, left_out)


def _told(bad: Sequence[lines.Bad], source: Path) -> dict[str, int]:
    """Count bad lines by what is wrong, and say where the first one is."""
    first = {each.reason: each.number for each in reversed(bad)}
    counts = Counter(each.reason for each in bad)
    return {f"{source}:{first[why]}: {why}": count for why, count in counts.items()}


def _text(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{source}: can not be read: {error.strerror}") from None


def _first(text: str, source: Path) -> dict[str, Any]:
    """Return the first line that is a JSON object: a damaged one costs itself."""
    for line in filter(str.strip, text.split("\n")):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    raise ConfigError(f"{source}: no line of it is a record; folders are MetaSchedule databases")


def _target(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or "kind" not in value:
        example = '{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
        raise ConfigError(f"--target: write it as JSON, such as {example!r}")
    return value
