"""Read a lock, a package or a run report, distinguished by content."""

from pathlib import Path

from autopipe.comparison.build import Build
from autopipe.lock.recognize import FileKind, recognize_file


def read_build(path: Path) -> Build:
    """Read the facts of a build from a file; nothing of a package is run.

    Raises LockError, PackageError, and ConfigError for an invalid report or any other file.
    """
    kind = recognize_file(path)
    if kind is FileKind.PACKAGE:
        from autopipe.comparison import packaged

        return packaged.read_package(path)
    if kind is FileKind.REPORT:
        from autopipe.comparison import run_report
        from autopipe.report import document

        return run_report.describe_report(document.read_report(path), path)
    from autopipe.comparison import locked
    from autopipe.lock import file

    lock = file.read_lock(path)
    return locked.describe_lock(lock, str(path), locked.read_traces(lock, path))
