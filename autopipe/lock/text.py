"""A lock as text: readable in `git diff`, deterministic, with its digest in the last line.

It is a subset of YAML: `key: value`, where a value is JSON on one line, or, where that would be
long, a block below. So each decision has its line, and each error a line number. Lines that are
not in the subset, or that were edited, are refused.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from autopipe import foreign
from autopipe.config.problem import Field, format_value, to_dotted_path
from autopipe.config.scalar import parse_plain_scalar
from autopipe.errors import LockError
from autopipe.lock.document import Lock

_HEAD: Final = (
    "# What this pipeline is built with, written by `autopipe run`: check it in, do not edit.\n"
)
_SEAL: Final = re.compile(r"# sha256: ([0-9a-f]{64})")
CONFLICT: Final = re.compile(r"(<{7}|={7}|>{7}|\|{7})( |$)")
"""Conflict markers of git."""
LINE_ENDS: Final = "in .gitattributes, `*.lock -text` and `*.records.jsonl -text` have git keep it"
_LINE: Final = re.compile(r'((?:  )*)(?:(- )?([\w./-]+|"(?:[^"\\]|\\.)*"):(?: (.+))?|- (.+))')
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL, which no pipeline file has, after any number of escaped backslashes."""
_EDITED: Final = "it was edited or cut short"
_MOST: Final = 500_000
"""Lines and values; a model of a thousand tasks has 30,000."""
_WIDTH: Final = 100
_DEEPEST: Final = 20
_BROAD: Final = 4
"""Spaces up to which a mapping takes a line for each key, however short it is."""

_Block = dict[str, Any] | list[Any]


def format_lock(lock: Lock) -> str:
    """Serialize a lock."""
    document = lock.model_dump(mode="json")
    tasks = document["tasks"]
    document = {**{name: _sort_keys(value) for name, value in document.items()}, "tasks": tasks}
    body = _HEAD + "".join(f"{line}\n" for line in _format_block(document, ""))
    return f"{body}# sha256: {sha256(body.encode()).hexdigest()}\n"


def parse_lock(text: str, path: Path) -> Lock:
    """Parse the text of a lock.

    Raises LockError, with the line, for merge conflicts, edits, and what is cut short.
    """
    reader = _LockReader(path, text.split("\n"))
    value = reader.document()
    if value.get("version") != 1:
        version = format_value(value.get("version"))
        reader.refuse(
            reader.line(("version",)), f"version {version}: this autopipe reads version 1"
        )
    reader.check()
    try:
        return Lock.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = first["loc"]
        reader.refuse(reader.line(at), f"{to_dotted_path(at)}: {format_value(first['msg'], 200)}")


def _format_block(value: Mapping[str, Any] | Sequence[Any], indent: str) -> Iterator[str]:
    """Yield the lines of a mapping or a list."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _format_entry(f"{indent}{_format_key(name)}:", inner, f"{indent}  ")
        return
    for item in value:
        if isinstance(item, Mapping) and item:
            lines = list(_format_block(item, f"{indent}  "))
            yield f"{indent}- {lines[0].strip()}"
            yield from lines[1:]
        else:
            yield f"{indent}- {_to_flow(item)}"


def _sort_keys(value: object) -> object:
    """Sort the keys of all mappings."""
    return json.loads(json.dumps(value, sort_keys=True))


def _format_entry(start: str, value: object, indent: str) -> Iterator[str]:
    """Yield a key with its value: on one line if it is short or a list of scalars."""
    flow = _to_flow(value)
    fits = len(start) + len(flow) < _WIDTH and len(indent) > _BROAD
    plain = not isinstance(value, dict) and not _has_mappings(value)
    if fits or plain or not value:
        yield f"{start} {flow}"
    else:
        yield start
        yield from _format_block(value, indent)  # type: ignore[arg-type]


def _has_mappings(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _to_flow(value: object) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


@cache  # most tasks have the same keys
def _format_key(name: str) -> str:
    try:
        plain = re.fullmatch(r"[\w./-]+", name, re.ASCII) and parse_plain_scalar(name) == name
    except ValueError:
        plain = False
    return name if plain and name[0].isalpha() else json.dumps(name)


class _LockReader:
    """Reads one text, and maps its fields to lines."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self._path = path
        self._lines = lines
        self._seal = 0
        self._places: dict[Field, int] = {(): 1}
        self._value: dict[str, Any] = {}
        self._blocks: list[tuple[Field, _Block]] = [((), self._value)]  # open, outermost first
        self._waiting: tuple[int, str] | None = None  # the line of a key without a value, the key

    def refuse(self, number: int, message: str) -> NoReturn:
        raise LockError(f"{self._path}:{number}: {message}")

    def line(self, field: Field) -> int:
        """Return the line of a field, or of the nearest parent that exists."""
        above = (field[:n] for n in range(len(field), -1, -1))
        return next(self._places[start] for start in above if start in self._places)

    def document(self) -> dict[str, Any]:
        """Parse the text above the seal, which is the last line."""
        self._refuse_what_git_did()
        seals = [n for n, line in enumerate(self._lines, 1) if _SEAL.fullmatch(line)]
        body = self._lines[: seals[0] - 1 if seals else None]
        if sum(map("\n".join(body).count, "[{,\n")) > _MOST:
            self.refuse(1, f"more than {_MOST} values, which no lock has; {_EDITED}")
        for number, line in enumerate(body, 1):
            self._read_line(number, line)
        self._refuse_waiting()
        if not seals:
            self.refuse(len(self._lines), "it ends without its digest: it was cut short")
        self._seal = seals[0]
        for number, line in enumerate(self._lines[self._seal :], self._seal + 1):
            if line:
                self.refuse(number, "something follows the digest; take it away")
        return self._value

    def check(self) -> None:
        """Refuse a text whose digest is not that of its seal."""
        *lines, seal = self._lines[: self._seal]
        body = "".join(f"{line}\n" for line in lines)
        if not seal.endswith(sha256(body.encode()).hexdigest()):
            self.refuse(
                self._seal,
                "not the digest of the text above: it was edited or merged by hand; restore it, or"
                " delete the file and `autopipe run` writes another",
            )

    def _refuse_what_git_did(self) -> None:
        """Refuse CRLF line ends and conflict markers."""
        for number, line in enumerate(self._lines, 1):
            if line.endswith("\r"):
                self.refuse(number, f"it ends as lines do on Windows; {LINE_ENDS}")
            if CONFLICT.match(line):
                self.refuse(number, "a merge conflict; take one side whole, then `autopipe run`")

    def _read_line(self, number: int, line: str) -> None:
        """Read a line; refuse one that is not in the subset, or is at a wrong depth."""
        if not line or line.startswith("#"):
            if (place := foreign.find_hidden(line)) is not None:
                self.refuse(number, f"U+{ord(line[place]):04X} is not shown as it is read")
            return
        match = _LINE.fullmatch(line)
        if match is None or len(match[1]) > 2 * _DEEPEST:
            self.refuse(number, f"{format_value(line)!r} is no line of a lock; {_EDITED}")
        indent, dash, key, value, item = match.groups()
        self._enter_block(number, len(indent) // 2, list if dash or item else dict)
        if item:
            self._add(number, None, self._parse(number, item))
        if dash:
            self._blocks.append(self._add(number, None, {}))
        if key:
            name = self._parse(number, key) if key[0] == '"' else key
            if _format_key(name) != key:
                self.refuse(number, f"{format_value(key)} is no key of a lock; {_EDITED}")
            if value:
                self._add(number, name, self._parse(number, value))
            else:
                self._waiting = number, name

    def _enter_block(self, number: int, depth: int, kind: type[_Block]) -> None:
        """Close the blocks below a depth, or open one for the key that has no value yet."""
        if self._waiting:
            if depth != len(self._blocks):
                self._refuse_waiting()
            self._blocks.append(self._add(*self._waiting, kind()))
            self._waiting = None
        del self._blocks[depth + 1 :]
        if depth >= len(self._blocks) or not isinstance(self._blocks[depth][1], kind):
            self.refuse(number, "this does not belong here; it was edited")

    def _refuse_waiting(self) -> None:
        """Refuse a key that has no value."""
        if self._waiting:
            number, name = self._waiting
            self.refuse(number, f"{format_value(name)} has no value; {_EDITED}")

    def _add(self, number: int, name: str | None, value: Any) -> tuple[Field, Any]:  # noqa: ANN401 -- JSON
        """Add a value to the innermost block, in a list without a name; return its field, too."""
        above, block = self._blocks[-1]
        field: Field = (*above, len(block) if name is None else name)
        if field in self._places:
            self.refuse(
                number,
                f"{to_dotted_path(field)}: given twice, first on line {self._places[field]}; keep"
                f" one of them; {_EDITED}",
            )
        self._places[field] = number
        if isinstance(block, list):
            block.append(value)
        elif name is not None:
            block[name] = value
        return field, value

    def _parse(self, number: int, text: str) -> Any:  # noqa: ANN401 -- JSON
        try:
            value = foreign.parse(text)
        except foreign.MalformedError:
            value = ...
        if value is ... or _NUL.search(text):
            self.refuse(number, f"{format_value(text)} is no value; {_EDITED}")
        return value
