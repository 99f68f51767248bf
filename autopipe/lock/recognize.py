"""Whether a text is a lock, also one that was merged, edited or cut short."""

import re
from pathlib import Path
from typing import Final

from autopipe import foreign
from autopipe.config.problem import shown
from autopipe.errors import ConfigError

_BLOCK: Final = 4096

_LOCK: Final = re.compile(
    rb"(?:#[^\n]*\n)*\s*(?:version:[^\n]*\r?\npipeline:|[<=>|]{7}(?:[ \r\n]|$))"
)


def is_lock(head: bytes) -> bool:
    """Tell a lock by how it begins; a pipeline file has no field `pipeline`."""
    return _LOCK.match(head) is not None


def head(path: Path) -> bytes:
    """Return how a file begins, which tells what it is. Raises ConfigError."""
    try:
        with foreign.opened(path) as file:
            return file.read(_BLOCK)
    except OSError as error:
        raise ConfigError(f"{shown(path, 4096)}: {error.strerror}") from error
