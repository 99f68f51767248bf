"""What kind of file tells of a build; also a lock that was merged, edited or cut short."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError

_BLOCK: Final = 4096
_MAGIC: Final = slice(257, 262)
"""Where a tar says that it is one."""

_LOCK: Final = re.compile(
    rb"(?:#[^\n]*\n)*\s*(?:version:[^\n]*\r?\npipeline:|[<=>|]{7}(?:[ \r\n]|$))"
)


class FileKind(StrEnum):
    """What kind of file tells of a build."""

    LOCK = "lock"
    PACKAGE = "package"
    REPORT = "report"


def recognize_file(path: Path) -> FileKind:
    """Return what kind a file is, by how it begins. Raises ConfigError for any other."""
    start = read_head(path)
    if is_package(start):
        return FileKind.PACKAGE
    if start.lstrip().startswith(b"{"):
        return FileKind.REPORT
    if is_lock(start):
        return FileKind.LOCK
    raise ConfigError(
        f"{format_value(path, 4096)}: neither a lock, nor a package, nor the report of a run"
    )


def is_package(head: bytes) -> bool:
    """Tell a package by how it begins."""
    return head[_MAGIC] == b"ustar"


def is_lock(head: bytes) -> bool:
    """Tell a lock by how it begins; a pipeline file has no field `pipeline`."""
    return _LOCK.match(head) is not None


def read_head(path: Path) -> bytes:
    """Return how a file begins, which tells what it is. Raises ConfigError."""
    try:
        with foreign.open_regular_file(path) as file:
            return file.read(_BLOCK)
    except OSError as error:
        raise ConfigError(f"{format_value(path, 4096)}: {error.strerror}") from error
