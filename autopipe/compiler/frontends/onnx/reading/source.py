"""The bytes of an ONNX model and its external data files."""

import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from autopipe import foreign
from autopipe.compiler.step_counter import count_bytes
from autopipe.errors import ModelError
from autopipe.host.copy_file import STRETCH

MAX_BYTES = 2**31 - 1
"""Maximum size of a protobuf message."""

# StringStringEntryProto {key: "location", value: ...} as protobuf writes it, up to the length.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]{0,4}[\x00-\x7f])")
_PICKLE = re.compile(rb"\x80[\x01-\x05][\x8a.(}\]c\x95KXq]")
_SUFFIXES = (".pt", ".pth", ".pkl", ".pickle")


def read_model_file(path: Path) -> bytes:
    """Read a model file; raises ModelError for an obviously wrong format."""
    try:
        with foreign.open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise ModelError(
                    f"{size} bytes are more than one protobuf can hold "
                    f"({MAX_BYTES}); save the weights as external data"
                )
            data = file.read()
    except OSError as error:
        raise ModelError(f"{error.strerror or error}") from error
    if not data:
        raise ModelError("the file is empty")
    if path.suffix == ".py":
        raise ModelError("Python, not ONNX; a TVMScript source needs model.format: tvmscript")
    is_archive = data.startswith(b"PK\x03\x04") and b"data.pkl" in data[:4096]
    if is_archive or _PICKLE.match(data) or path.suffix in _SUFFIXES:
        raise ModelError("pickle files can run code; export the model to ONNX")
    return data


def hash_model(data: bytes) -> str:
    """Return the SHA-256 of a model file's bytes as hexadecimal digits."""
    report, digest = count_bytes("MiB of the model digested", len(data)), hashlib.sha256()
    for start in range(0, len(data), STRETCH):
        part = memoryview(data)[start : start + STRETCH]
        digest.update(part)
        report(len(part))
    return digest.hexdigest()


def list_files(path: Path) -> Mapping[str, Path]:
    """List the model file and its external data files by location.

    Locations are searched in the raw bytes, because a plan must not import the onnx library.
    """
    files = {"model": path}
    try:
        with (
            foreign.open_regular_file(path) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            names = sorted(list_locations(data))
    except (OSError, ValueError):  # missing or empty: reported when it is read
        return files
    for name in names:
        try:
            files[f"data:{name}"] = locate_data(name, path)
        except ModelError:
            continue  # reported by the gate
    return files


def list_locations(data: bytes | mmap.mmap) -> frozenset[str]:
    """Find all locations of external data in the raw bytes of a model."""
    return frozenset(_walk_locations(data))


def _walk_locations(data: bytes | mmap.mmap) -> Iterator[str]:
    for match in _LOCATION.finditer(data):
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(match[1]))
        if length <= os.pathconf("/", "PC_PATH_MAX"):
            yield bytes(data[match.end() : match.end() + length]).decode(errors="replace")


def locate_data(location: str, model: Path) -> Path:
    """Resolve a location of external data to a file.

    With links resolved it must be a regular file in the folder of the model or below, where the
    model's own link, if it is one, may be resolved too: that is how model hubs keep their caches.
    Raises `ModelError` for anything else; the file is not opened.
    """
    parts = PurePosixPath(location)
    if "\0" in location or "\\" in location or not parts.parts:
        raise ModelError(f"external data {location!r} is not a file name")
    if parts.is_absolute() or ".." in parts.parts:
        raise ModelError(f"external data {location!r} is outside the folder of the model")
    try:
        real = (model.parent / parts).resolve(strict=True)
        status = real.lstat()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "links in a circle"
        raise ModelError(f"external data {location!r}: {reason}") from error
    roots = (model.parent.resolve(), model.resolve().parent)
    if not any(real.is_relative_to(root) for root in roots):
        raise ModelError(f"external data {location!r} links outside the folder of the model")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"external data {location!r} is not a regular file")
    if status.st_nlink > 1:
        raise ModelError(f"external data {location!r} is a hard link; copy the file")
    return real
