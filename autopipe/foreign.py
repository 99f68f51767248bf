"""What another may have written: files and JSON, read within bounds, and believed in nothing.

JSON from a file or a remote is read here and nowhere else. What two readers could understand
differently, or a later step could not write down again, is refused: NaN, Infinity and numbers that
no float comes near, a key that is there twice, characters that are not shown, halves of characters,
deep nesting, and more values than any document of ours has.
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
"""Lists and objects in each other."""

_MOST: Final = 500_000
"""Lists, objects and commas: what bounds the memory that a document takes."""

_DIGITS: Final = 100
"""Of a whole number, its sign included: any such is near some float."""

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""What may be half of a character; two halves are one."""


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of what is not shown: controls, formats such as those that reverse text,
halves of characters, and separators of lines, which a reader may take for a new line and git does
not."""

_NESTED: Final = (list, dict)
_HARMLESS: Final = frozenset("\t\n\r")
_NO_CHARACTERS: Final = frozenset("\ufffe\uffff")
_LONE_RETURN: Final = re.compile(r"\r(?!\n)")


class MalformedError(ValueError):
    """This is no JSON, or such as nobody should have to understand; says it in a line."""


def find_hidden(text: str) -> int | None:
    """Return where the first character is that makes a text read otherwise than it is shown.

    A carriage return is one unless a line feed follows.
    """
    if text.isprintable():  # says of all but a few texts at once that nothing is hidden
        return None
    characters = set(text) - _HARMLESS
    hidden = {c for c in characters if unicodedata.category(c) in _HIDDEN or c in _NO_CHARACTERS}
    returned = _LONE_RETURN.search(text)
    places = [*map(text.index, hidden), *([returned.start()] if returned else [])]
    return min(places, default=None)


def parse(data: bytes | str) -> Any:  # noqa: ANN401 -- JSON
    """Read a JSON value. Raises MalformedError, whose text quotes nothing of the data."""
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
    """Read a JSON object. Raises MalformedError."""
    value = parse(data)
    if not isinstance(value, dict):
        raise MalformedError("not an object")
    return value


def read(path: Path, largest: int) -> bytes:
    """Read a regular file of so many bytes at most. Raises OSError for any other."""
    with open_regular_file(path) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"larger than {largest >> 20} MiB, which no such file is", path)
    return data


def open_regular_file(path: Path) -> BufferedReader:
    """Open a regular file. Raises OSError for what would have to be waited for, or never ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a byte that no name has
        raise OSError(errno.EINVAL, str(error)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_lines(file: BinaryIO, longest: int) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for one that is longer than so many bytes."""
    while line := file.readline(longest + 1):
        if len(line) <= longest or line.endswith(b"\n"):
            yield line.removesuffix(b"\n")
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(longest)
        yield None


def _check_depth(value: object) -> None:
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
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MalformedError("a key is there twice")
    return found


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
