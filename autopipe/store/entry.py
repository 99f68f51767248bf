"""What the store remembers of an action, and how that is written."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from autopipe.errors import StoreError
from autopipe.store import files
from autopipe.store.artifact import Kind
from autopipe.store.canonical import Document, digest_json, seal_document, unseal_document
from autopipe.store.content import Manifest, TreeFile

_FORMAT: Final = 1
"""Of a record that does not say. Say `format` in it as soon as there is another."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class NewerError(StoreError):
    """A later release wrote this record; whatever it means, it stays as it is."""

    def __init__(self, path: Path, digest: str) -> None:
        """Take the digest of the object that the record seems to name."""
        super().__init__(f"{path}: written by a later release of autopipe")
        self.digest = digest


@dataclass(frozen=True, slots=True)
class Entry:
    """What the store remembers of an action."""

    action: Document
    kind: Kind
    digest: str
    manifest: Manifest
    used: int
    """When it was made or last served, in nanoseconds since 1970."""

    @property
    def size(self) -> int:
        """Return how many bytes its artifact has."""
        return sum(file.size for file in self.manifest)


def encode_entry(action: Document, kind: Kind, digest: str, manifest: Manifest) -> bytes:
    """Return a record."""
    return seal_document({
        "action": action,
        "kind": kind.value,
        "digest": digest,
        "files": [asdict(file) for file in manifest],
    })  # fmt: skip


def read_entry(path: Path, key: str) -> Entry | None:
    """Read the record of an action, if there is one.

    Raises StoreError for a damaged one, NewerError for one that is not for this release.
    """
    try:
        data, used = files.read(path), path.lstat().st_mtime_ns
    except FileNotFoundError:
        return None
    content = unseal_document(data) or {}
    if content.get("format", _FORMAT) != _FORMAT:
        raise NewerError(path, str(content.get("digest")))
    try:
        action, kind, name, listed = (content[n] for n in ("action", "kind", "digest", "files"))
        stored = Entry(action, Kind(kind), name, tuple(TreeFile(**file) for file in listed), used)
    except (LookupError, TypeError, ValueError):  # whole, but nothing that we wrote
        stored = None
    if stored is None or not _is_own_entry(stored) or digest_json(stored.action) != key:
        raise StoreError(f"{path}: damaged")
    return stored


def _is_own_entry(stored: Entry) -> bool:
    """Return whether a stage may have left this; its digest is a name in a folder of the store."""
    return (
        isinstance(stored.action, dict)
        and isinstance(stored.action.get("stage"), str)
        and isinstance(stored.digest, str)
        and _SHA256.fullmatch(stored.digest) is not None
        and all(type(file.size) is int for file in stored.manifest)
    )
