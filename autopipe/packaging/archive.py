"""The tar of a package: deterministic when written, and strict when read."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from autopipe import foreign
from autopipe.errors import PackageError, convert_os_errors
from autopipe.host.copy_file import copy_content
from autopipe.runtime.archive import BLOCK, END, Member, digest_member, make_header, read_members


def write_archive(
    archive: Path, files: Mapping[str, Path], report: Callable[[int], None] = lambda _: None
) -> None:
    """Write the files sorted by name, without times, owners and modes.

    `report` gets the bytes of each part that is copied.
    """
    with archive.open("wb") as out:
        for name in sorted(files):
            with files[name].open("rb") as source:
                size = os.fstat(source.fileno()).st_size
                out.write(make_header(name, size))
                copy_content(source, out, report)
            out.write(bytes(-size % BLOCK))
        out.write(END)


def open_archive_file(archive: Path) -> BinaryIO:
    """Open an archive without reading it. Raises PackageError."""
    with convert_os_errors(PackageError, archive):
        return foreign.open_regular_file(archive)


@contextmanager
def open_archive(
    archive: Path,
    names: Sequence[str],
    optional: Sequence[str] = (),
    copy: BinaryIO | None = None,
) -> Iterator[tuple[BinaryIO, dict[str, Member]]]:
    """Open an archive of exactly these and optional files; yield the file and its members.

    With a `copy`, that is read, and `archive` is only its name. Raises PackageError for any
    deviation from the output of `write_archive`.
    """
    with open_archive_file(archive) if copy is None else nullcontext(copy) as file:
        try:
            members = read_members(file, names, optional)
        except ValueError as error:
            raise PackageError(f"{archive}: {error}") from None
        try:
            yield file, members
        except PackageError as error:
            raise PackageError(f"{archive}: {error}") from None


def read_member(file: BinaryIO, member: Member, limit: int) -> bytes:
    """Return the bytes of a member that is no larger than `limit`."""
    if member.size > limit:
        raise PackageError(f"a file of {member.size} bytes, where {limit} is the limit")
    file.seek(member.start)
    return file.read(member.size)


def extract_member(file: BinaryIO, member: Member, to: Path | None = None) -> str:
    """Return the sha256 of a member; copy it to a new file if one is given."""
    try:
        return digest_member(file, member, to)
    except ValueError as error:
        raise PackageError(str(error)) from None
