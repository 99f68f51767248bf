"""The files of an artifact concatenated into one, without names, sizes or modes.

The manifest has the names and sizes; so a bundle has no format to parse, and no path in it can
escape the folder it is unpacked into.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from autopipe.remote.courier import DamagedError
from autopipe.store import files
from autopipe.store.content import Manifest, TreeFile

_CHUNK: Final = 2**20
_DEEPEST: Final = 16
"""Maximum nesting of folders."""
_LONGEST: Final = 255
"""Maximum bytes of a file name."""


def is_valid_manifest(manifest: Manifest) -> bool:
    """Return whether a manifest is valid: sorted, relative paths inside the artifact."""
    names = [file.name for file in manifest]
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    return (
        names == sorted(set(names) - folders)
        and all(_is_safe_path(name) for name in names)
        and all(file.size >= 0 for file in manifest)
        and any(file.size for file in manifest)
    )


def pack_files(tree: Path, manifest: Manifest, to: Path) -> None:
    """Concatenate the files of a tree. Raises DamagedError if one deviates from the manifest."""
    with files.wrap_os_errors(tree), to.open("xb") as out:
        for file in manifest:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(tree / file.name, flags), "rb") as source:
                _copy_checked(source, file, out)


def unpack_files(bundle: Path, manifest: Manifest, out: Path) -> None:
    """Unpack a bundle, whose manifest is valid, into an empty folder.

    Raises DamagedError if it deviates from the manifest, or StoreError.
    """
    with files.wrap_os_errors(bundle), ExitStack() as stack:
        if not bundle.is_file() or bundle.is_symlink():  # a folder in its place was copied as one
            raise DamagedError("what should be an object is none")
        source = stack.enter_context(bundle.open("rb"))
        for file in manifest:
            path = out / file.name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as target:
                _copy_checked(source, file, target)
        if source.read(1):
            raise DamagedError("an object is longer than its files")


def _copy_checked(source: BinaryIO, file: TreeFile, target: BinaryIO) -> None:
    digest = hashlib.sha256()
    for chunk in _read_chunks(source, file.size):
        digest.update(chunk)
        target.write(chunk)
    if digest.hexdigest() != file.sha256:
        raise DamagedError(f"the bytes of {file.name!r} have another digest")


def _read_chunks(source: BinaryIO, left: int) -> Iterator[bytes]:
    while left and (chunk := source.read(min(left, _CHUNK))):
        yield chunk
        left -= len(chunk)


def _is_safe_path(name: str) -> bool:
    try:
        parts = name.encode().split(b"/")
    except UnicodeEncodeError:
        return False
    return len(parts) <= _DEEPEST and all(
        part not in {b"", b".", b".."} and b"\0" not in part and len(part) <= _LONGEST
        for part in parts
    )
