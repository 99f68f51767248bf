"""Canonical JSON, so that equal documents have equal digests."""

import hashlib
import json
from typing import Any

from autopipe import foreign

Document = dict[str, Any]
"""A JSON object."""


def digest_json(document: object) -> str:
    """Digest a JSON value in its canonical form: sha256, 64 hex digits."""
    return hashlib.sha256(_to_canonical_json(document).encode()).hexdigest()


def pretty(document: object) -> str:
    """Serialize a JSON value readably: sorted keys, two spaces, one newline at the end."""
    return json.dumps(document, sort_keys=True, indent=2, allow_nan=False) + "\n"


def seal_document(document: Document) -> bytes:
    """Serialize a document in canonical form in one line, with its digest."""
    text = _to_canonical_json(document)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"content":{text},"sha256":"{sha256}"}}\n'.encode()


def unseal_document(data: bytes) -> Document | None:
    """Parse a sealed document; None if it is damaged."""
    try:
        content = foreign.parse_object(data).get("content")
        return content if isinstance(content, dict) and seal_document(content) == data else None
    except ValueError:
        return None


def _to_canonical_json(document: object) -> str:
    # Without indentation, or json encodes in Python: a cached run reads 50 sealed documents.
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
