"""Parse the record of an action in a remote, which is not trusted."""

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from autopipe.config.frozen import Frozen
from autopipe.remote import bundle
from autopipe.remote.courier import DamagedError
from autopipe.store.artifact import Kind
from autopipe.store.canonical import digest_json, unseal_document
from autopipe.store.content import TreeFile, digest_tree
from autopipe.store.entry import Entry

HEX: Final = r"^[0-9a-f]{64}$"
"""A sha256."""

Hex = Annotated[str, StringConstraints(pattern=HEX)]


_LARGEST: Final = 2**38
"""Maximum bytes of an artifact."""
_FILES: Final = 20_000


class _File(Frozen, frozen=True):
    name: Annotated[str, Field(max_length=1000)]
    size: Annotated[int, Field(strict=True, ge=0, le=_LARGEST)]
    sha256: Hex


class _Action(Frozen, frozen=True):
    action: dict[str, Any]
    kind: Kind
    digest: Hex
    files: Annotated[tuple[_File, ...], Field(max_length=_FILES)]


def parse_entry(key: str, data: bytes) -> Entry:
    """Parse and validate the entry of a key. Raises DamagedError."""
    try:
        document = _Action.model_validate(unseal_document(data))
    except ValueError:
        raise DamagedError(f"action {key[:16]} is damaged, or of another autopipe") from None
    manifest = tuple(TreeFile(file.name, file.size, file.sha256) for file in document.files)
    if digest_json(document.action) != key or not isinstance(document.action.get("stage"), str):
        raise DamagedError(f"action {key[:16]} is another's")
    if digest_tree(manifest) != document.digest or not bundle.is_valid_manifest(manifest):
        raise DamagedError(f"action {key[:16]} names files that cannot be")
    if sum(file.size for file in manifest) > _LARGEST:
        raise DamagedError(f"action {key[:16]} names more bytes than there can be")
    return Entry(document.action, document.kind, document.digest, manifest, 0)
