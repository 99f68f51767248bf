"""Read and write lock files."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe import foreign
from autopipe.errors import LockError, convert_os_errors
from autopipe.lock import text
from autopipe.lock.document import Lock
from autopipe.lock.recognize import find_records_path
from autopipe.store import files

if TYPE_CHECKING:
    from autopipe.signing.signers import Signer, Signers

_LARGEST: Final = 64 << 20


def read_lock(path: Path) -> Lock:
    """Read a lock. Raises LockError."""
    return text.parse_lock(read_text(path), path)


def read_signed(path: Path, signers: "Signers") -> "tuple[Lock, Signer]":
    """Verify the signature of a lock and parse the verified bytes; return lock and signer.

    Raises UnsignedError before anything is parsed; LockError, ConfigError, SetupError.
    """
    from autopipe.signing.signature import SignedKind

    data = _read_bytes(path)
    with signers.checked(BytesIO(data), path, SignedKind.LOCK) as (_, signer):
        return text.parse_lock(_decode_text(data, path), path), signer


def read_followed(path: Path, signers: "Signers | None", tmp: Path) -> tuple[Lock, Path | None]:
    """Read the lock that a run follows; it must be signed by one of the `signers` if there are any.

    With signers, the records are copied to the private folder `tmp`, whose path is returned too.
    Raises LockError, ConfigError, SetupError, StoreError.
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
    """Read the records beside a lock and check their digest; None if the lock names none.

    Raises LockError.
    """
    if lock.records is None:
        return None
    records = find_records_path(path)
    data = _read_bytes(records)
    digest = hashlib.sha256(data).hexdigest()
    if digest != lock.records:
        difference = f"locked {lock.records[:12]}, now {digest[:12]}"
        raise LockError(f"{records}: not the records that {path.name} names: {difference}")
    return data


def write_lock(path: Path, lock: str, records: str | None) -> None:
    """Write a lock and its records atomically, each by itself; the lock holds the records' digest.

    Raises StoreError.
    """
    records_path = find_records_path(path)
    with files.wrap_os_errors(path):
        if records is None:
            records_path.unlink(missing_ok=True)
        else:
            files.replace(records_path, records.encode(), path.parent, mode=0o644)
        files.replace(path, lock.encode(), path.parent, mode=0o644)


def read_text(path: Path) -> str:
    """Read a text file beside a pipeline file. Raises LockError."""
    return _decode_text(_read_bytes(path), path)


def _read_bytes(path: Path) -> bytes:
    with convert_os_errors(LockError, path, "; `autopipe run` writes it"):
        return foreign.read(path, _LARGEST)


def _decode_text(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LockError(f"{path}:{line}: not UTF-8; it was damaged") from error
