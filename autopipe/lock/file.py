"""Lock files on the disk."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe import foreign
from autopipe.errors import LockError
from autopipe.lock import text
from autopipe.lock.document import Lock
from autopipe.lock.paths import find_records_path
from autopipe.store import files

if TYPE_CHECKING:
    from autopipe.signing.signers import Signer, Signers

_LARGEST: Final = 64 << 20


def read_lock(path: Path) -> Lock:
    """Read a lock. Raises LockError."""
    return text.parse_lock(read_text(path), path)


def read_signed(path: Path, signers: "Signers") -> "tuple[Lock, Signer]":
    """Read a lock once; what is parsed is what was found to be signed, and by whom.

    Raises UnsignedError, before anything of it is looked at; LockError, ConfigError, SetupError.
    """
    from autopipe.signing.signature import SignedKind

    data = _read_bytes(path)
    with signers.checked(BytesIO(data), path, SignedKind.LOCK) as (_, signer):
        return text.parse_lock(_decode_text(data, path), path), signer


def read_followed(path: Path, signers: "Signers | None", tmp: Path) -> tuple[Lock, Path | None]:
    """Read a lock that a run follows, which one of the `signers` has to have signed, if any.

    Return with it a copy of its records in `tmp`, where nobody else changes them, if signers are
    named. Raises LockError, ConfigError, SetupError, StoreError.
    """
    if signers is None:
        return read_lock(path), None
    from autopipe.signing.signers import UnsignedError

    try:
        lock, _ = read_signed(path, signers)
    except UnsignedError as error:
        raise LockError(str(error)) from None
    records = read_records(path, lock)
    if records is None:
        return lock, None
    copy = tmp / find_records_path(path).name
    with files.wrap_os_errors(copy):
        copy.write_bytes(records)
    return lock, copy


def read_records(path: Path, lock: Lock) -> bytes | None:
    """Read the records beside a lock, which have to be those that it names; None if it names none.

    Raises LockError.
    """
    if lock.records is None:
        return None
    records = find_records_path(path)
    data = _read_bytes(records)
    digest = hashlib.sha256(data).hexdigest()
    if digest != lock.records:
        told = f"locked {lock.records[:12]}, now {digest[:12]}"
        raise LockError(f"{records}: not the records that {path.name} names: {told}")
    return data


def write_lock(path: Path, lock: str, records: str | None) -> None:
    """Write a lock and its records, each whole or not at all; the lock names its records' digest.

    Raises StoreError.
    """
    beside = find_records_path(path)
    with files.wrap_os_errors(path):
        if records is None:
            beside.unlink(missing_ok=True)
        else:
            files.replace(beside, records.encode(), path.parent, mode=0o644)
        files.replace(path, lock.encode(), path.parent, mode=0o644)


def read_text(path: Path) -> str:
    """Read a text that is kept beside a pipeline. Raises LockError."""
    return _decode_text(_read_bytes(path), path)


def _read_bytes(path: Path) -> bytes:
    try:
        return foreign.read(path, _LARGEST)
    except OSError as error:
        raise LockError(f"{path}: {error.strerror}; `autopipe run` writes it") from error


def _decode_text(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LockError(f"{path}:{line}: not UTF-8; it was damaged") from error
