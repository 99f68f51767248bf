"""Parse strict YAML to plain values with the place of each.

The file is read event by event, so aliases are never followed, tags never interpreted and deep
nesting never recursed into. Lists become tuples. A refused value becomes `REFUSED`, and parsing
continues, so that all problems of a file are found at once.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple, Protocol

import yaml

from autopipe import foreign
from autopipe.config.problem import Diagnostic, Field, Place, format_value
from autopipe.config.scalar import check_quoted_scalar, parse_plain_scalar

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML built without libyaml: slower, the same events
    from yaml import SafeLoader as Loader  # type: ignore[assignment]


class _Refused(Enum):
    REFUSED = "refused"


REFUSED: Final = _Refused.REFUSED
"""Stands for a value with a problem that was reported already."""

_TAGGED: Final = (yaml.ScalarEvent, yaml.CollectionStartEvent)
"""Events that may have an anchor or a tag."""

_DEEPEST = 50
_MOST = 20_000


class _Mark(Protocol):
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class _Unreadable(Exception):  # noqa: N818 - it ends the reading, and never leaves this file
    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class Document(NamedTuple):
    """The value of a text, the places of every field's key and value, and its problems."""

    value: object
    keys: dict[Field, Place]
    values: dict[Field, Place]
    problems: list[Diagnostic]


def parse_document(text: str, at: Field = (), option: str = "") -> Document:
    """Parse a text; `at` and `option` are the field and the option of an overriding value."""
    reader = _YamlReader(text, option)
    start = Place(option, 1, 1)
    reader.keys[at] = reader.values[at] = start
    try:
        value = reader.document(at)
    except _Unreadable as end:
        value = REFUSED
        reader.problems.append(Diagnostic(Place(option, end.line, end.column), (), str(end)))
    return Document(value, reader.keys, reader.values, reader.problems)


class _YamlReader:
    """Converts the events of one text to values."""

    def __init__(self, text: str, option: str) -> None:
        self.keys: dict[Field, Place] = {}
        self.values: dict[Field, Place] = {}
        self.problems: list[Diagnostic] = []
        self._option = option
        self._events = _list_events(text)

    def document(self, at: Field) -> object:
        start = next(self._events)
        if not isinstance(start, yaml.DocumentStartEvent):
            remedy = "write null if that is meant" if self._option else "start with `version: 1`"
            raise _Unreadable(1, 1, f"nothing in it; {remedy}")
        if start.version or start.tags:
            self._add_problem(start, at, "a % directive; leave it out")
        value = self._read_node(next(self._events), at)
        next(self._events)  # the end of the document
        if not isinstance(end := next(self._events), yaml.StreamEndEvent):
            message = "a second document; one file is one pipeline"
            raise _Unreadable(*_mark_position(end.start_mark), message)
        return value

    def _read_node(self, event: yaml.Event, at: Field) -> object:
        self.values[at] = self._place(event)
        if mark := _explain_refused_node(event):
            self._add_problem(event, at, mark)
            self._skip_node(event)
            return REFUSED
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(event, at)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._read_sequence(at)
        return self._read_mapping(at)

    def _read_scalar(self, event: yaml.ScalarEvent, at: Field) -> object:
        try:
            return (
                check_quoted_scalar(event.value) if event.style else parse_plain_scalar(event.value)
            )
        except ValueError as error:
            self._add_problem(event, at, str(error))
            return REFUSED

    def _read_sequence(self, at: Field) -> tuple[object, ...]:
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            place = (*at, len(items))
            self.keys[place] = self._place(event)
            items.append(self._read_node(event, place))
        return tuple(items)

    def _read_mapping(self, at: Field) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._read_key(event, at)
            if key is None:
                self._skip_node(next(self._events))
                continue
            inner = (*at, key)
            if inner in self.keys:
                first = self.keys[inner].line
                self._add_problem(
                    event, inner, f"given twice, first on line {first}; keep one of them"
                )
                self._skip_node(next(self._events))
                continue
            self.keys[inner] = self._place(event)
            values[key] = self._read_node(next(self._events), inner)
        return values

    def _read_key(self, event: yaml.Event, at: Field) -> str | None:
        """Read a key; None for a refused one."""
        mark = _explain_refused_node(event)
        if mark or not isinstance(event, yaml.ScalarEvent):
            self._add_problem(event, at, mark or "a key must be text")
            self._skip_node(event)
            return None
        key = self._read_scalar(event, at)
        if isinstance(key, str):
            return key
        if key is not REFUSED:
            self._add_problem(
                event, at, f"the key {format_value(event.value)} is not text; put it in quotes"
            )
        return None

    def _skip_node(self, event: yaml.Event) -> None:
        """Skip a node that is not part of the result."""
        depth = 0
        while True:
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth == 0:
                return
            event = next(self._events)

    def _add_problem(self, event: yaml.Event, at: Field, message: str) -> None:
        self.problems.append(Diagnostic(self._place(event), at, message))

    def _place(self, event: yaml.Event) -> Place:
        return Place(self._option, *_mark_position(event.start_mark))


def _explain_refused_node(event: yaml.Event) -> str | None:
    """Explain why a node that is an alias, or has an anchor or a tag, is refused."""
    if isinstance(event, yaml.AliasEvent):
        return f"`*{format_value(event.anchor)}` is an alias; write it out, or put it in quotes"
    if isinstance(event, _TAGGED):
        if event.anchor is not None:
            return (
                f"`&{format_value(event.anchor)}` is an anchor; leave it out, or put it in quotes"
            )
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            return f"`{format_value(tag)}` is a tag; leave it out, the field decides the type"
    return None


def _list_events(text: str) -> Iterator[yaml.Event]:
    """Yield the events after the start of the stream; raise _Unreadable for invalid YAML."""
    if (index := foreign.find_hidden(text)) is not None:
        line, column = find_position(text, index)
        message = f"U+{ord(text[index]):04X} is not shown as it is read; leave it out, or write"
        raise _Unreadable(line, column, f"{message} it as `\\u...` in double quotes")
    depth = 0
    try:
        for count, event in enumerate(yaml.parse(text, Loader=Loader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                message = f"nested too deep; {_DEEPEST} levels at most"
                raise _Unreadable(*_mark_position(event.start_mark), message)
            if count > _MOST:
                message = f"too long; {_MOST} keys and values at most"
                raise _Unreadable(*_mark_position(event.start_mark), message)
            if not isinstance(event, yaml.StreamStartEvent):
                yield event
    except yaml.MarkedYAMLError as error:
        line, column = _mark_position(error.problem_mark or error.context_mark)
        raise _Unreadable(line, column, _explain_syntax_error(text, line, column, error)) from error


def _explain_syntax_error(text: str, line: int, column: int, error: yaml.MarkedYAMLError) -> str:
    """Explain a syntax error; libyaml does not report the offending character."""
    problem = str(error.problem or error.context)
    character = "".join(text.splitlines()[line - 1 : line])[column - 1 : column]
    if character == "\t":
        return "a tab; YAML is indented with spaces"
    if "cannot start any token" in problem:
        return f"`{format_value(character)}` cannot start a value; put it in quotes"
    return f"not YAML: {problem}"


def _mark_position(mark: _Mark | None) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def find_position(text: str, index: int) -> tuple[int, int]:
    """Return line and column, both from 1, of a character of the text."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
