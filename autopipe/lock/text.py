"""A lock as text: made for `git diff`, the same bytes for the same lock, sealed by its last line.

It is YAML of the narrowest kind: `key: value`, where a value is JSON on one line, or, where that
would be long, a block below. So a line is a decision, and an error has a line.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from autopipe import foreign
from autopipe.config.problem import dotted, shown
from autopipe.config.scalar import resolve
from autopipe.errors import LockError
from autopipe.lock.document import Lock
from autopipe.lock.migrations import Step, upgrade

_HEAD: Final = (
    "# What this pipeline is built with, written by `autopipe run`: check it in, do not edit.\n"
)
_SEAL: Final = re.compile(r"# sha256: ([0-9a-f]{64})")
CONFLICT: Final = re.compile(r"(<{7}|={7}|>{7}|\|{7})( |$)")
"""What git leaves in a file that two branches have changed."""
LINE_ENDS: Final = "in .gitattributes, `*.lock -text` and `*.records.jsonl -text` have git keep it"
_LINE: Final = re.compile(r'((?:  )*)(?:(- )?([\w./-]+|"(?:[^"\\]|\\.)*"):(?: (.+))?|- (.+))')
_WIDTH: Final = 100
_DEEPEST: Final = 20
_BROAD: Final = 4
"""Spaces up to which a mapping takes a line for each key, however short it is."""


def write(lock: Lock) -> str:
    """Return the lock as text."""
    document = lock.model_dump(mode="json")
    tasks = document["tasks"]
    document = {**{name: _sorted(value) for name, value in document.items()}, "tasks": tasks}
    body = _HEAD + "".join(f"{line}\n" for line in _block(document, ""))
    return f"{body}# sha256: {sha256(body.encode()).hexdigest()}\n"


def parse(text: str, path: Path, steps: Mapping[int, Step] = MappingProxyType({})) -> Lock:
    """Read what `write` wrote; `steps` bring what an earlier release wrote up to date.

    Raises LockError, with the line, for merge conflicts, edits, and what is cut short.
    """
    lines = text.split("\n")
    reader = _Reader(path, lines)
    for number, line in enumerate(lines, 1):
        if line.endswith("\r"):
            reader.refuse(number, f"it ends as lines do on Windows; {LINE_ENDS}")
        if CONFLICT.match(line):
            reader.refuse(number, "a merge conflict; take one side whole, then `autopipe run`")
    value = reader.document()
    if type(value.get("version")) is int and value["version"] in steps:
        reader.check()
        value = upgrade(value, steps)
    if value.get("version") != 1:
        place = reader.places.get(("version",), 1)
        reader.refuse(
            place, f"version {shown(value.get('version'))}: this autopipe reads version 1"
        )
    reader.check()
    try:
        return Lock.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = first["loc"]
        above = (at[:n] for n in range(len(at), -1, -1))
        nearest = next(reader.places[field] for field in above if field in reader.places)
        reader.refuse(nearest, f"{dotted(at)}: {shown(first['msg'], 200)}")


def _block(value: Mapping[str, Any] | Sequence[Any], indent: str) -> Iterator[str]:
    """Yield the lines of a mapping or a list."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _entry(f"{indent}{_key(name)}:", inner, f"{indent}  ")
        return
    for item in value:
        if isinstance(item, Mapping) and item:
            lines = list(_block(item, f"{indent}  "))
            yield f"{indent}- {lines[0].strip()}"
            yield from lines[1:]
        else:
            yield f"{indent}- {_flow(item)}"


def _sorted(value: object) -> object:
    """Sort the keys of what has no order of its own."""
    return json.loads(json.dumps(value, sort_keys=True))


def _entry(start: str, value: object, indent: str) -> Iterator[str]:
    """Yield a key with its value: on one line where a diff of that line still says enough."""
    flow = _flow(value)
    fits = len(start) + len(flow) < _WIDTH and len(indent) > _BROAD
    plain = not isinstance(value, dict) and not _mappings(value)
    if fits or plain or not value:
        yield f"{start} {flow}"
    else:
        yield start
        yield from _block(value, indent)  # type: ignore[arg-type]


def _mappings(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _flow(value: object) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _key(name: str) -> str:
    try:
        plain = re.fullmatch(r"[\w./-]+", name, re.ASCII) and resolve(name) == name
    except ValueError:
        plain = False
    return name if plain and name[0].isalpha() else json.dumps(name)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    depth: int
    item: bool
    key: str | None
    value: str | None


class _Reader:
    """Reads the lines of one text; lives for it."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self._path = path
        self._text = lines
        self._lines: list[_Line] = []
        self._at = 0
        self._seal = 0
        self.places: dict[tuple[str | int, ...], int] = {(): 1}

    def refuse(self, number: int, message: str) -> NoReturn:
        raise LockError(f"{self._path}:{number}: {message}")

    def document(self) -> dict[str, Any]:
        self._lines = [self._parsed(n, line) for n, line in self._sealed()]
        value = self._mapping(0, ())
        if self._at < len(self._lines):
            self.refuse(self._lines[self._at].number, "this does not belong here; it was edited")
        return value

    def check(self) -> None:
        """Refuse a text that somebody has changed since it was written."""
        *lines, seal = self._text[: self._seal]
        body = "".join(f"{line}\n" for line in lines)
        if not seal.endswith(sha256(body.encode()).hexdigest()):
            self.refuse(
                self._seal,
                "not the digest of the text above: it was edited or merged by hand; restore it, or"
                " delete the file and `autopipe run` writes another",
            )

    def _sealed(self) -> Iterator[tuple[int, str]]:
        """Yield the numbered lines between head and seal."""
        seals = [n for n, line in enumerate(self._text, 1) if _SEAL.fullmatch(line)]
        for number, line in enumerate(self._text[: seals[0] - 1 if seals else None], 1):
            if line and not line.startswith("#"):
                yield number, line
        if not seals:
            self.refuse(len(self._text), "it ends without its digest: it was cut short")
        rest = [n for n, line in enumerate(self._text[seals[0] :], seals[0] + 1) if line]
        if rest:
            self.refuse(rest[0], "something follows the digest; take it away")
        self._seal = seals[0]

    def _parsed(self, number: int, line: str) -> _Line:
        found = _LINE.fullmatch(line)
        if found is None or len(found[1]) > 2 * _DEEPEST:
            self.refuse(number, f"{shown(line)!r} is no line of a lock; it was edited or cut short")
        indent, dash, key, value, scalar = found.groups()
        name = self._json(number, key) if key and key[0] == '"' else key
        return _Line(number, len(indent) // 2, bool(dash or scalar), name, value or scalar)

    def _json(self, number: int, text: str) -> Any:  # noqa: ANN401
        try:
            return foreign.parse(text)
        except foreign.MalformedError:
            self.refuse(number, f"{shown(text)} is no value; it was edited or cut short")

    def _mapping(self, depth: int, at: tuple[str | int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.depth != depth or line.item or line.key is None:
                break
            if line.key in found:
                self.refuse(line.number, f"{shown(line.key)} is there twice; it was merged by hand")
            found[line.key] = self._value(line, (*at, line.key))
        return found

    def _value(self, line: _Line, at: tuple[str | int, ...]) -> Any:  # noqa: ANN401
        """Read what follows the key of a line."""
        self.places[at] = line.number
        self._at += 1
        if line.value is not None:
            return self._json(line.number, line.value)
        following = self._lines[self._at] if self._at < len(self._lines) else None
        if following is None or following.depth != line.depth + 1:
            self.refuse(line.number, f"{shown(line.key)} has no value; it was edited or cut short")
        return (self._list if following.item else self._mapping)(following.depth, at)

    def _list(self, depth: int, at: tuple[str | int, ...]) -> list[Any]:
        found: list[Any] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.depth != depth or not line.item:
                break
            here = (*at, len(found))
            self.places[here] = line.number
            if line.key is None:
                found.append(self._json(line.number, line.value or ""))
                self._at += 1
            else:  # a mapping: its first line is as deep as those that follow
                self._lines[self._at] = replace(line, depth=depth + 1, item=False)
                found.append(self._mapping(depth + 1, here))
        return found
