"""Takes over records from files, whatever tool wrote them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopipe import foreign
from autopipe.errors import ConfigError
from autopipe.records import autotvm, lines, metaschedule
from autopipe.records.left_out import LeftOut
from autopipe.records.merge import Taken, add_claims, add_seeds
from autopipe.records.store import RecordDetails, RecordStore


@dataclass(frozen=True, slots=True)
class Brought:
    """What a file had for us."""

    what: str
    """What it is that was added."""
    added: int
    known: int
    left_out: Mapping[str, int]
    """How many were left out, by why."""


def import_records(store: RecordStore, source: Path, target: str | None) -> Brought:
    """Import a file or a MetaSchedule folder; `target` is the JSON target of a database.

    Raises ConfigError for unsupported sources, and StoreError.
    """
    if source.is_dir():
        database = metaschedule.read_database(source, _parse_target(target))
        return _build_import_result("seed", add_claims(store, database.found), database.left_out)
    if target is not None:
        raise ConfigError(f"--target is for MetaSchedule databases, {source} is a file")
    first = _read_first_object(source)
    autotvm.refuse_ansor(first, source)
    if "input" in first and "config" in first:
        log = autotvm.read(lines.read_lines(source))
        return _build_import_result("seed", add_seeds(store, log.seeds), log.left_out)
    if "checksum" not in first:
        raise ConfigError(f"{source}: neither `autopipe records export` nor AutoTVM wrote this")
    left_out = LeftOut()
    counts = add_claims(store, list_sound_records(lines.read(lines.read_lines(source)), left_out))
    return _build_import_result("record", counts, left_out.located(source))


def list_sound_records(
    read: Iterable[RecordDetails | lines.Bad], left_out: LeftOut
) -> Iterator[RecordDetails]:
    """Yield the records, and count the lines that are none."""
    for line in read:
        if isinstance(line, RecordDetails):
            yield line
        else:
            left_out.add(line.reason, line=line.number)


def _build_import_result(kind: str, counts: Taken, left_out: Mapping[str, int]) -> Brought:
    condemned = {"marked wrong": counts.condemned} if counts.condemned else {}
    return Brought(kind, counts.added, counts.known, {**left_out, **condemned})


def _read_first_object(source: Path) -> dict[str, Any]:
    """Return the first line that is a JSON object: a damaged one costs itself."""
    for line in lines.read_lines(source):
        try:
            return foreign.parse_object(line or b"")
        except foreign.MalformedError:
            continue
    raise ConfigError(f"{source}: no line of it is a record; folders are MetaSchedule databases")


def _parse_target(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        value = foreign.parse(text)
    except foreign.MalformedError:
        value = None
    if not isinstance(value, dict) or "kind" not in value:
        example = '{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
        raise ConfigError(f"--target: write it as JSON, such as {example!r}")
    return value
