"""The record of an action in the store, and its serialization."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from autopipe.errors import StoreError
from autopipe.store import files
from autopipe.store.artifact import Kind
from autopipe.store.canonical import Document, digest_json, seal_document, unseal_document
from autopipe.store.content import Manifest, TreeFile

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Entry(NamedTuple):
    """The record of an action."""

    action: Document
    kind: Kind
    digest: str
    manifest: Manifest
    used: int
    """Time of its last use, in nanoseconds since 1970."""

    @property
    def size(self) -> int:
        """Return the size of its artifact in bytes."""
        return sum(file.size for file in self.manifest)


def encode_entry(action: Document, kind: Kind, digest: str, manifest: Manifest) -> bytes:
    """Serialize a record."""
    return seal_document({
        "action": action,
        "kind": kind.value,
        "digest": digest,
        "files": [file._asdict() for file in manifest],
    })  # fmt: skip


def read_entry(path: Path, key: str) -> Entry | None:
    """Read the record of an action, if there is one. Raises StoreError for a damaged one."""
    try:
        data, use_time = files.read(path), path.lstat().st_mtime_ns
    except FileNotFoundError:
        return None
    content = unseal_document(data) or {}
    try:
        action, kind, name, file_documents = (
            content[n] for n in ("action", "kind", "digest", "files")
        )
        record = Entry(
            action, Kind(kind), name, tuple(TreeFile(**file) for file in file_documents), use_time
        )
    except (LookupError, TypeError, ValueError):  # intact, but not a record of this program
        record = None
    if record is None or not _is_own_entry(record) or digest_json(record.action) != key:
        raise StoreError(f"{path}: damaged")
    return record


def _is_own_entry(record: Entry) -> bool:
    """Return whether a record has valid types; its digest is used as a file name."""
    return (
        isinstance(record.action, dict)
        and isinstance(record.action.get("stage"), str)
        and isinstance(record.digest, str)
        and _SHA256.fullmatch(record.digest) is not None
        and all(type(file.size) is int for file in record.manifest)
    )
