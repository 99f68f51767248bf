"""Compare an exported folder with its list of digests, without running anything."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autopipe import foreign
from autopipe.errors import PackageError, convert_os_errors
from autopipe.export.folder import DIGESTS
from autopipe.signing.signature import find_signature_path

_LARGEST: Final = 1 << 20
"""Maximum size of the list."""
_LINE: Final = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*)")


def read_digests(folder: Path) -> bytes:
    """Read the list of digests of a folder. Raises PackageError if there is none."""
    path = folder / DIGESTS
    with convert_os_errors(PackageError, path), foreign.open_regular_file(path) as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise PackageError(f"{path}: not a list of digests")
    return data


def _parse_digests(data: bytes, path: Path) -> dict[str, str]:
    """Parse the SHA-256 of each file, by its path in the folder."""
    matches = [_LINE.fullmatch(line) for line in data.decode("ascii", "replace").splitlines()]
    if not matches or None in matches:
        raise PackageError(f"{path}: not a list of digests")
    return {match[2]: match[1] for match in matches if match}


def verify_folder(folder: Path, digests: bytes) -> Mapping[str, str]:
    """Compare every file of an exported folder with its digest; return the digests.

    `digests` is what `read_digests` returned. Raises PackageError for a file that is missing,
    damaged, a link, or not listed.
    """
    file_digests = _parse_digests(digests, folder / DIGESTS)
    own_names = {DIGESTS, find_signature_path(folder / DIGESTS).name}
    present = {
        Path(place, name).relative_to(folder).as_posix()
        for place, _, names in os.walk(folder)
        for name in names
    }
    if missing := sorted(file_digests.keys() - present):
        raise PackageError(f"{folder}: {missing[0]} is missing")
    if extra_names := sorted(present - file_digests.keys() - own_names):
        raise PackageError(f"{folder}: {extra_names[0]!r} is not in {DIGESTS}")
    for name, digest in file_digests.items():
        if (folder / name).is_symlink() or not (folder / name).is_file():
            raise PackageError(f"{folder}/{name}: not a regular file")
        with foreign.open_regular_file(folder / name) as file:
            actual_digest = hashlib.sha256()
            while chunk := file.read(1 << 20):
                actual_digest.update(chunk)
            if actual_digest.hexdigest() != digest:
                raise PackageError(
                    f"{folder}/{name}: damaged, its SHA-256 is not that of {DIGESTS}"
                )
    return file_digests
