"""The tar of a package: one byte sequence for one content, and read as strictly.

A header says nothing but a name and a size. The reader makes the header it expects from these
two and compares all 512 bytes, so that links, devices, sparse files, extensions, foreign owners
and whatever else tar can say are not interpreted but refused.
"""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autopipe import foreign
from autopipe.errors import PackageError

_BLOCK = 512
_END = bytes(2 * _BLOCK)
_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Member:
    """Where a file lies in the archive."""

    start: int
    size: int


def write(archive: Path, files: Mapping[str, Path]) -> None:
    """Write the files under their names, sorted; nothing else of them enters the archive."""
    with archive.open("wb") as out:
        for name in sorted(files):
            with files[name].open("rb") as source:
                size = os.fstat(source.fileno()).st_size
                out.write(_header(name, size))
                shutil.copyfileobj(source, out)
            out.write(bytes(-size % _BLOCK))
        out.write(_END)


def source(archive: Path) -> BinaryIO:
    """Open the file of an archive, whatever is in it. Raises PackageError."""
    try:
        return foreign.opened(archive)
    except OSError as error:
        raise PackageError(f"{archive}: {error.strerror}") from error


@contextmanager
def opened(
    archive: Path,
    names: Sequence[str],
    optional: Sequence[str] = (),
    copy: BinaryIO | None = None,
) -> Iterator[tuple[BinaryIO, dict[str, Member]]]:
    """Open an archive that has exactly these files, and optional ones; yield it and where they lie.

    With a `copy`, that is read, and `archive` is only its name. Raises PackageError for anything
    that `write` would not have written.
    """
    with source(archive) if copy is None else nullcontext(copy) as file:
        try:
            yield file, _members(file, names, optional)
        except PackageError as error:
            raise PackageError(f"{archive}: {error}") from None


def read(file: BinaryIO, member: Member, limit: int) -> bytes:
    """Return the bytes of a member that is no larger than `limit`."""
    if member.size > limit:
        raise PackageError(f"a file of {member.size} bytes, where {limit} is the limit")
    file.seek(member.start)
    return file.read(member.size)


def extract(file: BinaryIO, member: Member, to: Path | None = None) -> str:
    """Return the sha256 of a member; copy what is digested into a new file if one is given."""
    digest = hashlib.sha256()
    left = member.size
    file.seek(member.start)
    with to.open("xb") if to else Path(os.devnull).open("wb") as out:
        while left:
            chunk = file.read(min(left, 1 << 20))
            if not chunk:
                raise PackageError("it became shorter while it was read")
            digest.update(chunk)
            out.write(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def _members(file: BinaryIO, names: Sequence[str], optional: Sequence[str]) -> dict[str, Member]:
    length = os.fstat(file.fileno()).st_size
    members = {}
    for name in sorted({*names, *optional}):
        block = file.read(_BLOCK)
        size = _size(block)
        if size is None or block != _header(name, size):
            if name in optional:
                file.seek(-len(block), os.SEEK_CUR)
                continue
            raise PackageError(f"not a package of autopipe: {name!r} does not follow")
        members[name] = Member(start := file.tell(), size)
        end = start + size + -size % _BLOCK
        if end + len(_END) > length:
            raise PackageError(f"it ends within {name!r}")
        file.seek(start + size)
        if any(file.read(end - start - size)):
            raise PackageError(f"there is something between the files, after {name!r}")
    if file.read(len(_END) + 1) != _END:
        raise PackageError("there is something after the last file")
    return members


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = _MODE
    return entry.tobuf(tarfile.GNU_FORMAT, "ascii", "strict")


def _size(block: bytes) -> int | None:
    try:
        return tarfile.TarInfo.frombuf(block, "ascii", "strict").size
    except (tarfile.HeaderError, UnicodeDecodeError):
        return None
