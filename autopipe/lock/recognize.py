"""Whether a text is a lock, also one that was merged, edited or cut short."""

import re
from typing import Final

_LOCK: Final = re.compile(
    rb"(?:#[^\n]*\n)*\s*(?:version:[^\n]*\r?\npipeline:|[<=>|]{7}(?:[ \r\n]|$))"
)


def is_lock(head: bytes) -> bool:
    """Tell a lock by how it begins; a pipeline file has no field `pipeline`."""
    return _LOCK.match(head) is not None
