"""The one way a JSON document is written, so that equal documents have equal digests."""

import hashlib
import json
from typing import Any

from autopipe import foreign

Document = dict[str, Any]
"""A JSON object."""


def digest(document: object) -> str:
    """Digest a JSON value in its canonical form: sha256, 64 hex digits."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def pretty(document: object) -> str:
    """Write a JSON value for people: sorted keys, two spaces, one newline at the end."""
    return json.dumps(document, sort_keys=True, indent=2, allow_nan=False) + "\n"


def seal(document: Document) -> bytes:
    """Write a document together with its own digest."""
    return pretty({"content": document, "sha256": digest(document)}).encode()


def unseal(data: bytes) -> Document | None:
    """Read what `seal` wrote; None if a single byte of it is different."""
    try:
        content = foreign.parse_object(data).get("content")
        return content if isinstance(content, dict) and seal(content) == data else None
    except ValueError:
        return None
