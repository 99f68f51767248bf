"""A lock, a package or a run report, told apart by what is in it."""

from pathlib import Path
from typing import Final

from autopipe.comparison.build import Build
from autopipe.config.problem import shown
from autopipe.errors import ConfigError
from autopipe.lock import recognize

_MAGIC: Final = slice(257, 262)
"""Where a tar says that it is one."""


def read(path: Path) -> Build:
    """Return what a file says of a build; nothing of a package is run.

    Raises LockError, PackageError, and ConfigError for a report that can not be read and for
    what is none of the three.
    """
    head = recognize.head(path)
    if head[_MAGIC] == b"ustar":
        from autopipe.comparison import packaged

        return packaged.read(path)
    if head.lstrip().startswith(b"{"):
        from autopipe.comparison import run_report
        from autopipe.report import document

        return run_report.of(document.load(path), path)
    if recognize.is_lock(head):
        from autopipe.comparison import locked
        from autopipe.lock import file

        lock = file.read(path)
        return locked.of(lock, str(path), locked.traces(lock, path))
    raise ConfigError(
        f"{shown(path, 4096)}: neither a lock, nor a package, nor the report of a run"
    )
