"""What the system refuses, told from what anybody raises or prints: room, files, memory.

A library says it in its own way. Python's errors have a number; safetensors and TVM have a text
with the words of the system in it; LLVM and linkers print these words and end. So numbers are
looked for first, through all causes of an error, and then words.
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
"""What a disk or a limit says of any file, whatever is in it."""

REFUSED: Final = SHORT | {errno.EROFS, errno.EACCES, errno.EPERM}
"""What they, or a permission, say of any file that is written."""

_WORDS: Final = {
    **{os.strerror(number): os.strerror(number) for number in sorted(SHORT)},
    "File size limit exceeded": os.strerror(errno.EFBIG),  # a linker that SIGXFSZ has ended
    "No usable temporary directory": "no folder for temporary files can be written",
}
"""What is printed or raised, and what is said of it."""

_SHORT_WRITE: Final = re.compile(r"\b\d+ requested and \d+ written\b")
"""What numpy raises, without a number."""

OUT_OF_MEMORY: Final = "out of memory"
"""What every message says of memory that was refused."""

_HUNGRY: Final = (
    "std::bad_alloc", "LLVM ERROR: out of memory", "MemoryError", os.strerror(errno.ENOMEM),
    "memory exhausted", "failed to map segment from shared object", "cannot map zero-fill pages",
    "Memory allocation still failed", "bad allocation", "can not allocate memory",
    "cannot allocate memory", "Unable to allocate", "Failed to allocate memory", "out of memory",
    "vector::_M_default_append", "can't allocate region",
)  # fmt: skip
"""What is raised or printed where there is no memory, or there are no addresses for it: by C++,
LLVM, Python, glibc, the dynamic linker, OpenBLAS, NumPy and onnxruntime."""

_THREADS: Final = ("can't start new thread", "pthread_create failed", "thread constructor failed")
"""What is raised or printed where a thread gets no memory for its stack, or is one too many."""


def find_refusal(text: str) -> str | None:
    """Return what was refused, as far as words of a disk or of a limit tell; None for others."""
    found = next((meaning for words, meaning in _WORDS.items() if words in text), None)
    return os.strerror(errno.ENOSPC) if found is None and _SHORT_WRITE.search(text) else found


def explain_memory_refusal(text: str) -> str | None:
    """Say what is missing where words tell of memory that was refused; None for other words."""
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
    """Say what is missing where an error, or what it comes from, is memory that was refused."""
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
    """Return what a disk or a limit refused as an error with a path; None for other errors.

    `place` is named where the error names no file itself; null for the folder of temporary files.
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
    """Return the failure of a stage as what it is where a disk or a limit refused something."""
    words = find_refusal(str(error))
    named = StoreError(f"{place or find_temporary_folder()}: {words}") if words else None
    return to_store_error(error, place) or named


def to_final_error(error: BaseException) -> AutopipeError | None:
    """Return an error as what the command line ends in; None for a bug, or for an interruption.

    An error of ours stays what it is, unless it blames a file for what a disk or a limit refused.
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


def as_os_error(error: Exception, path: object) -> Exception:
    """Return an error of a library that writes files as Python would have raised it."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is None:
        return error
    code = int(number[1])
    return OSError(code, os.strerror(code), str(path))


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it comes from, each once: an error may be its own cause."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        yield found
        seen.add(id(found))
        found = found.__cause__
