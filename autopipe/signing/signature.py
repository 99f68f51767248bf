"""What is signed, where its signature lies, and how both are read."""

import os
import tempfile
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, cast

from autopipe.errors import ConfigError, StoreError
from autopipe.host.copy_file import copy_content

LARGEST: Final = 1 << 16
"""Bytes of a signature; those of the largest keys, with a certificate, have a quarter of that."""


class SignedKind(StrEnum):
    """What is signed: the namespace, so that no signature of one kind serves as the other."""

    PACKAGE = "autopipe-package"
    LOCK = "autopipe-lock"
    FOLDER = "autopipe-folder"


def find_signature_path(path: Path) -> Path:
    """Return where the signature of a file lies: beside it."""
    return path.with_name(f"{path.name}.sig")


def read_bounded(path: Path, largest: int) -> bytes:
    """Read a file that is no larger than that. Raises OSError, and ConfigError for a larger one."""
    with os.fdopen(_open_nonblocking(path), "rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ConfigError(f"{path}: larger than {largest} bytes")
    return data


def copy_of(content: BinaryIO) -> BinaryIO:
    """Return a copy that has no name, so that nobody changes it between two looks at it.

    Raises StoreError where there is no room for it.
    """
    try:
        with ExitStack() as held:
            copy = held.enter_context(tempfile.TemporaryFile())
            copy_content(content, copy)
            copy.seek(0)
            held.pop_all()
    except OSError as error:
        why = error.strerror or error
        raise StoreError(f"{tempfile.tempdir}: no copy to check: {why}") from error
    return cast("BinaryIO", copy)


def _open_nonblocking(path: Path) -> int:
    """Open a file, or a pipe; one that nobody writes to is empty, where one would wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
