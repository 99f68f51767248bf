"""Opens the file of the record store, and explains errors of SQLite."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from autopipe.errors import StoreError
from autopipe.records.schema import VERSION, OtherVersionError, make_tables

_PATIENCE: Final = 60.0
"""Seconds to wait for another process that is writing."""

_PAUSE: Final = 0.01
"""Seconds between two attempts of an operation without SQLite's busy timeout."""

_LONGEST: Final = 1 << 26
"""Bytes of a value."""

_MADE: Final = (
    "SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')"
    " OR sql LIKE '%VIRTUAL TABLE%' OR sql LIKE '%GENERATED ALWAYS%'"
)
"""Constructs of a foreign file that compute rows: they could run forever."""

_SAID: Final = {
    "SQLITE_FULL": "no space is left; what was reported as measured is kept",
    "SQLITE_IOERR": "reading or writing failed; is the disk full?",
    "SQLITE_READONLY": "it cannot be written here",
    "SQLITE_BUSY": f"another process keeps it locked for more than {_PATIENCE:.0f} s",
}
"""Explanations of SQLite error codes, by their prefix."""


def open_writable(path: Path) -> sqlite3.Connection:
    """Open a file for reading and writing, made anew if there is none.

    Raises sqlite3.DatabaseError if it is damaged, and OtherVersionError.
    """
    connection = sqlite3.connect(path, timeout=_PATIENCE)
    try:
        _set_limits(connection)
        _enable_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
        _check_integrity(connection)
        make_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_readable(path: Path) -> sqlite3.Connection:
    """Open an existing file read-only. Raises the errors of `open_writable`."""
    try:
        connection = _open_read_only(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if not path.is_file() or _is_in_use(path, error):
            raise
        connection = _open_read_only(
            path, "immutable=1"
        )  # no log can be made beside it, so none is needed
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            connection = _add_tables_in_memory(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def wrap_store_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and the file system to StoreError, with an explanation."""
    try:
        yield
    except (OtherVersionError, sqlite3.Error, OSError) as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        reason = next((text for code, text in _SAID.items() if name.startswith(code)), None)
        raise StoreError(f"{path}: {reason} ({error})" if reason else f"{path}: {error}") from error


def _is_in_use(path: Path, error: sqlite3.OperationalError) -> bool:
    """Tell whether a file that cannot be opened has a write-ahead log, or another writer."""
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0 and os.access(path.parent, os.W_OK)
    return has_log or error.sqlite_errorname.startswith("SQLITE_BUSY")


def _open_read_only(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=_PATIENCE)
    try:
        _set_limits(connection)
        _check_tables(connection)
        _check_integrity(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Enable the write-ahead log, so that readers never wait.

    Of two processes that switch a new file over at once, SQLite refuses one without any waiting:
    each has read the file and wants to write it. The one that is refused tries again.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _set_limits(connection: sqlite3.Connection) -> None:
    # Bytes that are no text then are a wrong checksum, not an error that costs all rows.
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)


def _check_integrity(connection: sqlite3.Connection) -> None:
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _check_tables(connection: sqlite3.Connection) -> None:
    if connection.execute(_MADE).fetchone() is not None:
        raise sqlite3.DatabaseError("it computes what it says, which no store of ours does")


def _add_tables_in_memory(old: sqlite3.Connection) -> sqlite3.Connection:
    """Copy a file that has no tables yet to memory, and add them. Raises OtherVersionError."""
    copy = sqlite3.connect(":memory:")
    try:
        _set_limits(copy)
        old.backup(copy)
        make_tables(copy)
    except BaseException:
        copy.close()
        raise
    old.close()
    return copy
