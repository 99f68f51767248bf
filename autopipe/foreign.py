"""Read untrusted files and JSON, within limits.

All JSON from files and remotes is parsed here. Ambiguous or unserializable input is refused: NaN,
Infinity and numbers beyond the range of float64, duplicate keys, invisible characters, lone
surrogates, deep nesting, and more values than any document of autopipe has.
"""

import errno
import json
import math
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

_DEEPEST: Final = 64
"""Maximum nesting of lists and objects."""

_MOST: Final = 500_000
"""Maximum number of lists, objects and commas, which limits the memory of a document."""

_DIGITS: Final = 100
"""Maximum digits of an integer, its sign included: all such are in the range of float64."""

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""An escaped surrogate, which may be lone."""


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of invisible characters: controls, formats such as those that reverse text,
surrogates, and line separators, which some programs treat as a new line and git does not."""

_NESTED: Final = (list, dict)
_HARMLESS: Final = frozenset("\t\n\r")
_NO_CHARACTERS: Final = frozenset("\ufffe\uffff")
_LONE_RETURN: Final = re.compile(r"\r(?!\n)")


class MalformedError(ValueError):
    """Invalid or ambiguous JSON; the message is one line."""


def find_hidden(text: str) -> int | None:
    """Return the index of the first invisible or misleading character; None if there is none.

    A carriage return counts unless a line feed follows.
    """
    if text.replace("\n", "").isprintable():  # the common case
        return None
    characters = set(text) - _HARMLESS
    hidden_characters = {
        c for c in characters if unicodedata.category(c) in _HIDDEN or c in _NO_CHARACTERS
    }
    carriage_return = _LONE_RETURN.search(text)
    places = [
        *map(text.index, hidden_characters),
        *([carriage_return.start()] if carriage_return else []),
    ]
    return min(places, default=None)


def parse(data: bytes | str) -> Any:  # noqa: ANN401 -- JSON
    """Parse a JSON value. Raises MalformedError, whose text quotes nothing of the data."""
    try:
        text = data if isinstance(data, str) else data.decode()
        text.encode()
        if (place := find_hidden(text)) is not None:
            raise MalformedError(f"U+{ord(text[place]):04X} is not shown as it is read")
        if sum(map(text.count, "[{,")) > _MOST:
            raise MalformedError("more values than any document has")
        value = _DECODER.decode(text)
        _check_depth(value)
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise MalformedError("nested too deeply") from None
    except UnicodeDecodeError:
        raise MalformedError("not UTF-8") from None
    except UnicodeEncodeError:
        raise MalformedError("half of a character") from None
    except json.JSONDecodeError as error:
        raise MalformedError(str(error)) from None
    return value


def parse_object(data: bytes | str) -> dict[str, Any]:
    """Parse a JSON object. Raises MalformedError."""
    value = parse(data)
    if not isinstance(value, dict):
        raise MalformedError("not an object")
    return value


def read(path: Path, largest: int) -> bytes:
    """Read a regular file of up to `largest` bytes. Raises OSError for any other."""
    with open_regular_file(path) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"larger than {largest >> 20} MiB, which no such file is", path)
    return data


def open_regular_file(path: Path) -> BufferedReader:
    """Open a regular file. Raises OSError for pipes and devices, which may block or never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte in the name
        raise OSError(errno.EINVAL, str(error)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_lines(file: BinaryIO, longest: int) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for a line longer than `longest` bytes."""
    while line := file.readline(longest + 1):
        if len(line) <= longest or line.endswith(b"\n"):
            yield line.removesuffix(b"\n")
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(longest)
        yield None


def _check_depth(value: object) -> None:
    if not isinstance(value, _NESTED):
        return
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner for item in level for inner in _list_children(item) if isinstance(inner, _NESTED)
        ]
        if not level:
            return
    raise MalformedError("nested too deeply")


def _list_children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedError("a key is there twice")
    return members


def _parse_integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise MalformedError(f"a number of more than {_DIGITS} digits")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise MalformedError("a number that is too large")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise MalformedError(f"{text}, which is no number")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_build_object,
    parse_int=_parse_integer,
    parse_float=_parse_float,
    parse_constant=_refuse_constant,
)
