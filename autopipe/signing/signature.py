"""Kinds of signed files, paths of signatures, and bounded reads."""

import os
import tempfile
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, cast

from autopipe.errors import ConfigError, StoreError, convert_os_errors
from autopipe.host.copy_file import copy_content

LARGEST: Final = 1 << 16
"""Maximum bytes of a signature, four times those of the largest keys with a certificate."""


class SignedKind(StrEnum):
    """The namespace of a signature, so that it is valid for one kind of file only."""

    PACKAGE = "autopipe-package"
    LOCK = "autopipe-lock"
    FOLDER = "autopipe-folder"


def find_signature_path(path: Path) -> Path:
    """Return the path of the signature of a file, beside it."""
    return path.with_name(f"{path.name}.sig")


def read_bounded(path: Path, largest: int) -> bytes:
    """Read a file of up to `largest` bytes. Raises OSError, and ConfigError for a larger one."""
    with os.fdopen(_open_nonblocking(path), "rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ConfigError(f"{path}: larger than {largest} bytes")
    return data


def copy_of(content: BinaryIO) -> BinaryIO:
    """Return an anonymous copy of a file, which cannot change between verification and use.

    Raises StoreError if the disk is full.
    """
    place = f"{tempfile.gettempdir()}: no copy to check"
    with convert_os_errors(StoreError, place), ExitStack() as stack:
        copy = stack.enter_context(tempfile.TemporaryFile())
        copy_content(content, copy)
        copy.seek(0)
        stack.pop_all()
    return cast("BinaryIO", copy)


def _open_nonblocking(path: Path) -> int:
    """Open a file or a pipe; a pipe without a writer is empty instead of blocking."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
