"""Detect errors of disks, limits and memory in exceptions and in output.

Libraries report them differently. Python's errors have an errno; safetensors and TVM have a text
with the message of the system; LLVM and linkers print this message and exit. So the errno of all
causes of an error is checked first, and then the texts.
"""

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from autopipe.errors import AutopipeError, GateError, SetupError, StageError, StoreError
from autopipe.host.memory import describe_memory_limit

SHORT: Final = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE,
})  # fmt: skip
"""Errors of a disk or a limit for any file."""

REFUSED: Final = SHORT | {errno.EROFS, errno.EACCES, errno.EPERM}
"""Errors of a disk, a limit or a permission for any file that is written."""

_WORDS: Final = {
    **{os.strerror(number): os.strerror(number) for number in sorted(SHORT)},
    "File size limit exceeded": os.strerror(errno.EFBIG),  # a linker that SIGXFSZ has ended
    "No usable temporary directory": "no folder for temporary files can be written",
}
"""Messages by the text that is printed or raised."""

_SHORT_WRITE: Final = re.compile(r"\b\d+ requested and \d+ written\b")
"""Message of NumPy, which has no errno."""

OUT_OF_MEMORY: Final = "out of memory"
"""Part of every message about refused memory."""

_HUNGRY: Final = (
    "std::bad_alloc", "LLVM ERROR: out of memory", "MemoryError", os.strerror(errno.ENOMEM),
    "memory exhausted", "failed to map segment from shared object", "cannot map zero-fill pages",
    "Memory allocation still failed", "bad allocation", "not allocate memory",
    "Unable to allocate", "Failed to allocate memory", "out of memory",
    "vector::_M_default_append", "can't allocate region",
)  # fmt: skip
"""Texts of failed allocations in C++, LLVM, Python, glibc, the dynamic linker, OpenBLAS, NumPy and
onnxruntime."""

_THREADS: Final = ("can't start new thread", "pthread_create failed", "thread constructor failed")
"""Texts of failures to start a thread, for lack of memory or a limit on threads."""


def find_refusal(text: str) -> str | None:
    """Return the error of a disk or a limit in a text; None if there is none."""
    meaning = next((meaning for words, meaning in _WORDS.items() if words in text), None)
    return os.strerror(errno.ENOSPC) if meaning is None and _SHORT_WRITE.search(text) else meaning


def explain_memory_refusal(text: str) -> str | None:
    """Explain a text about refused memory; None for other texts."""
    if any(words in text for words in _THREADS):
        return (
            f"{OUT_OF_MEMORY} for a thread, or of threads (`ulimit -u`); {describe_memory_limit()}"
        )
    return (
        f"{OUT_OF_MEMORY}; {describe_memory_limit()}"
        if any(words in text for words in _HUNGRY)
        else None
    )


def explain_memory_error(error: BaseException) -> str | None:
    """Explain an error that, or a cause of which, is refused memory; None for other errors."""
    for cause in _list_causes(error):
        number = cause.errno if isinstance(cause, OSError) else None
        if isinstance(cause, MemoryError) or number == errno.ENOMEM:
            return explain_memory_refusal("MemoryError")
        if isinstance(cause, BlockingIOError) and cause.filename is None:  # from a fork
            return explain_memory_refusal(_THREADS[0])
        if not isinstance(cause, AutopipeError) and (words := explain_memory_refusal(str(cause))):
            return words
    return None


def to_store_error(error: BaseException, place: object = None) -> StoreError | None:
    """Convert an error of a disk or a limit to a StoreError with a path; None for other errors.

    `place` is named if the error has no file name; None for the folder of temporary files.
    """
    place = place or find_temporary_folder()
    for cause in _list_causes(error):
        if isinstance(cause, FileNotFoundError) and cause.filename is None and _is_folder_deleted():
            return StoreError("the current folder was deleted; change to another one")
        if isinstance(cause, OSError) and cause.errno in REFUSED:
            return StoreError(f"{cause.filename or place}: {cause.strerror}")
        if not isinstance(cause, AutopipeError) and (words := find_refusal(str(cause))):
            return StoreError(f"{getattr(cause, 'filename', None) or place}: {words}")
    return None


def to_refusal_error(error: StageError, place: object = None) -> StoreError | None:
    """Convert a stage's failure due to a disk or a limit to a StoreError; None for others."""
    words = find_refusal(str(error))
    store_error = StoreError(f"{place or find_temporary_folder()}: {words}") if words else None
    return to_store_error(error, place) or store_error


def to_final_error(error: BaseException) -> AutopipeError | None:
    """Convert an error to that of the command line; None for a bug, or for an interruption.

    An AutopipeError is unchanged, unless its cause is an error of a disk or a limit.
    """
    if isinstance(error, StoreError | SetupError | GateError):
        return error
    if isinstance(error, AutopipeError):
        short = any(isinstance(e, OSError) and e.errno in SHORT for e in _list_causes(error))
        return StoreError(str(error)) if short else error
    if not isinstance(error, Exception):
        return None
    missing = explain_memory_error(error)
    return SetupError(missing) if missing else to_store_error(error)


def _is_folder_deleted() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def find_temporary_folder() -> str:
    """Return the folder of temporary files, whether or not it can be written."""
    return tempfile.tempdir or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - only named


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each once: an error may be its own cause."""
    cause: BaseException | None = error
    visited: set[int] = set()
    while cause is not None and id(cause) not in visited:
        yield cause
        visited.add(id(cause))
        cause = cause.__cause__
