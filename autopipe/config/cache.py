"""Section `cache`: results shared with other machines."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from autopipe.config.frozen import Consistent, Contradiction
from autopipe.config.quantity import Duration

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check_remote(text: str) -> str:
    """Validate the URL or folder of a remote and return it; the ValueError contains no secret."""
    if not text.isprintable():
        raise ValueError("should be one line of text")
    if not _SCHEME.match(text):
        return text
    if "@" in text or "?" in text:
        raise ValueError(
            "leave out what follows a `?` or stands before an `@`: users, passwords and tokens "
            "come from the storage's own environment or configuration"
        )
    if "::" in text or "://" not in text:
        raise ValueError("should be one URL, such as s3://bucket/folder, or a folder")
    return text


def resolve_remote_url(text: str, base: Path) -> str:
    """Return the URL of a remote; a folder is relative to `base`."""
    return text if _SCHEME.match(text) else f"file://{(base / text).absolute()}"


class Cache(Consistent, frozen=True):
    """Results of other machines. Its location changes no result, and is in no key."""

    remote: Annotated[str, Field(min_length=1), AfterValidator(check_remote)] | None = None
    """Their location: any URL that fsspec reads (`s3://`, `gs://`, `https://`, ...), or a folder,
    relative to this file. Null is no remote."""
    mode: Literal["off", "read", "readwrite"] = "read"
    """`read` fetches results, `readwrite` also uploads new ones, `"off"` (in quotes) does
    neither."""
    timeout: Duration = 10.0
    """Time limit of an answer, plus a second per MiB of a file."""
    time: Duration = 600.0
    """A run that has spent this long on the remote continues without it."""

    def _contradictions(self) -> Iterator[Contradiction]:
        if self.mode == "readwrite" and (self.remote or "").startswith(("http://", "https://")):
            yield ("mode",), self.mode, "is not possible over HTTP, which only reads; write read"
