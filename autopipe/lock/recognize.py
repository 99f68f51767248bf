"""Find locks and their records, and recognize locks, packages and reports by their first bytes."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError, convert_os_errors

_BLOCK: Final = 4096
_MAGIC: Final = slice(257, 262)
"""Position of the magic of a tar."""

_LOCK: Final = re.compile(
    rb"(?:#[^\n]*\n)*\s*(?:version:[^\n]*\r?\npipeline:|[<=>|]{7}(?:[ \r\n]|$))"
)


class FileKind(StrEnum):
    """Kinds of files that describe a build."""

    LOCK = "lock"
    PACKAGE = "package"
    REPORT = "report"


def recognize_file(path: Path) -> FileKind:
    """Return the kind of a file by its first bytes. Raises ConfigError for any other file."""
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
    """Return whether the first bytes are those of a package."""
    return head[_MAGIC] == b"ustar"


def is_lock(head: bytes) -> bool:
    """Return whether the first bytes are those of a lock: a pipeline file has no `pipeline`."""
    return _LOCK.match(head) is not None


def read_head(path: Path) -> bytes:
    """Read the first 4 KiB of a file. Raises ConfigError."""
    place = format_value(path, 4096)
    with convert_os_errors(ConfigError, place), foreign.open_regular_file(path) as file:
        return file.read(_BLOCK)


def lock_of(pipeline: Path, build: str | None = None) -> Path:
    """Return the path of the lock of a pipeline file, or of one of its builds."""
    return pipeline.with_suffix(".lock" if build is None else f".{build}.lock")


def find_records_path(lock: Path) -> Path:
    """Return the path of the records of a lock."""
    return lock.with_suffix(".records.jsonl")
