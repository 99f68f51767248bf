"""The headers of a package's tar, read strictly.

A header holds only a name and a size. The reader builds the expected header from these two and
compares all 512 bytes, so that links, devices, sparse files, extensions and foreign owners are
refused instead of interpreted.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
_MODE: Final = 0o644


class Member(NamedTuple):
    """Position and size of a file in the archive, in bytes."""

    start: int
    size: int


def list_names(file: BinaryIO) -> list[str]:
    """Return the names in the headers, up to the first invalid one; `read_members` checks them."""
    names: list[str] = []
    file.seek(0)
    while (entry := _read_entry(file.read(BLOCK))) is not None and entry.name not in names:
        names.append(entry.name)
        file.seek(entry.size + -entry.size % BLOCK, os.SEEK_CUR)
    return names


def read_members(
    file: BinaryIO, names: Collection[str], optional: Collection[str]
) -> dict[str, Member]:
    """Return the positions of the files of an archive: exactly these and optional ones, sorted.

    Raises ValueError if it is not a package.
    """
    file.seek(0)
    length = os.fstat(file.fileno()).st_size
    members = {}
    for name in sorted({*names, *optional}):
        block = file.read(BLOCK)
        entry = _read_entry(block)
        if entry is None or block != make_header(name, entry.size):
            if name in optional and name not in names:
                file.seek(-len(block), os.SEEK_CUR)
                continue
            raise ValueError(f"not a package of autopipe: {name!r} does not follow")
        members[name] = Member(start := file.tell(), entry.size)
        end = start + entry.size + -entry.size % BLOCK
        if end + len(END) > length:
            raise ValueError(f"it ends within {name!r}")
        file.seek(start + entry.size)
        if any(file.read(end - start - entry.size)):
            raise ValueError(f"there is something between the files, after {name!r}")
    if file.read(len(END) + 1) != END:
        raise ValueError("there is something after the last file")
    return members


def digest_member(file: BinaryIO, member: Member, to: Path | None = None) -> str:
    """Return the SHA-256 of a file of an archive, and copy it to a new path if one is given.

    Raises ValueError if the archive became shorter.
    """
    digest, left = hashlib.sha256(), member.size
    file.seek(member.start)
    with to.open("xb") if to else Path(os.devnull).open("wb") as out:
        while left:
            chunk = file.read(min(left, 1 << 20))
            if not chunk:
                raise ValueError("it became shorter while it was read")
            digest.update(chunk)
            out.write(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def make_header(name: str, size: int) -> bytes:
    """Return the header of a file."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = _MODE
    return entry.tobuf(tarfile.GNU_FORMAT, "ascii", "strict")


def _read_entry(block: bytes) -> tarfile.TarInfo | None:
    try:
        entry = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError):
        return None
    return entry if entry.size >= 0 else None
