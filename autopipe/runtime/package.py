"""Open a package with only NumPy and this runtime installed.

All files are compared with the manifest before anything is loaded. Libraries are unpacked into a
private folder that is deleted once the package is open; weights are mapped in place.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from .archive import Member, digest_member, list_names, read_members
from .description import LIBRARY, describe_builds, list_halves
from .folder import (
    CallError,
    CallLimitError,
    ExportedModel,
    load_library,
    open_folder,
    to_options,
)
from .weights import PlacedWeight, are_aligned, map_bytes, read_header, widen_weights

__all__ = ["CallError", "CallLimitError", "ExportedModel", "open_package"]

RUNTIME: Final = "runtime.json"
"""File with the versions and digests of the libraries beside it."""
DIGESTS: Final = "SHA256SUMS"

_LIBRARIES: Final = Path(__file__).parent / "lib"
_MANIFEST, _WEIGHTS, _COMPONENTS = "manifest.json", "weights.safetensors", "components.cdx.json"
_LARGEST: Final = 64 << 20
"""Bytes of a manifest."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INVALID_FILE, _UNSUPPORTED = 3, 4


def open_package(
    package: str | Path,
    *,
    threads: int | None = None,
    instances: int = 1,
    verify: bool = False,
    copy_weights: bool = False,
) -> ExportedModel:
    """Open a package, or an exported folder. Raises CallError if it cannot be opened.

    It runs on `threads` threads: by default on `$TVM_NUM_THREADS`, or as many as it was tuned for.
    `instances` calls run concurrently. `verify` compares every file of a folder with SHA256SUMS
    first; a package is always compared with its manifest. `copy_weights` copies the weights to
    private memory with large pages instead of mapping them.
    """
    path, options = Path(package), to_options(threads, instances)
    options.copy_weights = copy_weights
    library = load_library(_LIBRARIES / "libautopipe.so", _LIBRARIES / RUNTIME)
    if path.is_dir():
        options.verify_digests = verify
        return open_folder(library, path, options)
    with _unpack_package(path) as folder:
        return open_folder(library, folder, options)


@contextmanager
def _unpack_package(package: Path) -> Iterator[Path]:
    """Yield a temporary folder in the layout of an exported one, with the weights in place."""
    with _open_file(package) as file, tempfile.TemporaryDirectory(prefix="autopipe-") as work:
        folder = Path(work)
        try:
            members = read_members(file, (LIBRARY, _MANIFEST, _WEIGHTS), list_names(file))
            files, needs = _read_manifest(file, members)
            _check_runtime(needs)
            _write_files(file, members, files, folder)
            with _place_weights(file, members[_WEIGHTS], needs) as (source, placed_weights, start):
                for name, text in describe_builds(needs, placed_weights, start):
                    (folder / name).write_text(text, encoding="utf-8")
                (folder / _WEIGHTS).symlink_to(f"/proc/self/fd/{source.fileno()}")
                yield folder
        except (ValueError, OSError) as error:
            raise CallError(f"{package}: {error}", _INVALID_FILE) from None


def _open_file(path: Path) -> BinaryIO:
    """Open a regular file; do not block on pipes. Raises CallError."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (OSError, ValueError) as error:
        raise CallError(f"{path}: {error}", _INVALID_FILE) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CallError(f"{path}: not a regular file", _INVALID_FILE)
    return file


def _read_manifest(
    file: BinaryIO, members: Mapping[str, Member]
) -> tuple[dict[str, tuple[str, int]], Mapping[str, Any]]:
    """Return digest and size of each file, and the requirements. Raises ValueError."""
    start, size = members[_MANIFEST]
    if size > _LARGEST:
        raise ValueError(f"{_MANIFEST} has {size} bytes, where {_LARGEST} is the limit")
    file.seek(start)
    try:
        document = json.loads(file.read(size))
        needs = document["predicate"]["buildDefinition"]["internalParameters"]
        files = {
            one["name"]: (one["digest"]["sha256"], one["annotations"]["size"])
            for one in document["subject"]
        }
        device, halves = (needs["signature"].get(name) for name in ("device", "halves"))
        named_parts = {**needs["runtime"], **dict.fromkeys(halves or ())}
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{_MANIFEST} does not fit: {error!r}") from None
    if any(not isinstance(name, str) for name in (*files, *named_parts)):
        raise ValueError(f"{_MANIFEST} does not fit: a name is no text")
    if device not in (None, "cpu"):
        raise CallError(f"a package for {device} takes autopipe itself", _UNSUPPORTED)
    if files.keys() != members.keys() - {_MANIFEST}:
        raise ValueError(f"{_MANIFEST} lists other files than there are")
    return files, needs


def _check_runtime(needs: Mapping[str, Any]) -> None:
    """Raise CallError for a package that was built for another TVM."""
    required, installed = needs["runtime"], _read_runtime()["versions"]
    if required != installed:
        required_text, installed_text = (
            ", ".join(f"{name} {version}" for name, version in one.items())
            for one in (required, installed)
        )
        raise CallError(
            f"the package needs {required_text}; this runtime is {installed_text}", _UNSUPPORTED
        )


def _read_runtime() -> Mapping[str, Any]:
    """Return versions and digests of the libraries of this runtime."""
    document: Mapping[str, Any] = json.loads((_LIBRARIES / RUNTIME).read_text(encoding="utf-8"))
    return document


def _write_files(
    file: BinaryIO, members: Mapping[str, Member], files: Mapping[str, tuple[str, int]], to: Path
) -> None:
    """Compare every file with its digest; write the files to load, and the list of digests."""
    lines = []
    for name, (digest, size) in files.items():
        if not _NAME.fullmatch(name) or members[name].size != size:
            raise ValueError(f"{name!r} is damaged, or no name of a package")
        if name in (_WEIGHTS, _COMPONENTS):
            actual_digest = hashlib.sha256(map_bytes(file, *members[name]).data).hexdigest()
        else:
            actual_digest = digest_member(file, members[name], to / name)
        if actual_digest != digest:
            raise ValueError(f"{name!r} is damaged: its sha256 is not the manifest's")
        lines.append(f"{digest}  {name}\n")
    library_digests = _read_runtime()["sha256"]
    lines += [f"{digest}  lib/{name}\n" for name, digest in library_digests.items()]
    (to / DIGESTS).write_text("".join(lines), encoding="utf-8")
    (to / "lib").symlink_to(_LIBRARIES)


@contextmanager
def _place_weights(
    file: BinaryIO, member: Member, needs: Mapping[str, Any]
) -> Iterator[tuple[BinaryIO, Mapping[str, PlacedWeight], int]]:
    """Yield the file to map, the weights by name, and the offset of their safetensors file in it.

    It is the package itself, or a copy in memory if weights have to be widened or aligned.
    """
    data = map_bytes(file, member.start, member.size)
    placed_weights, halves = read_header(data.data), list_halves(needs)
    if are_aligned(placed_weights) and not halves:
        yield file, placed_weights, member.start
        return
    with os.fdopen(os.memfd_create("weights"), "w+b") as copy:
        placed_weights = widen_weights(data, halves, copy)
        copy.flush()
        yield copy, placed_weights, 0
