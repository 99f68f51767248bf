"""Other ways to compute a function than it was lowered to, one file each."""

from typing import Final

from autopipe import extensions
from autopipe.schedules.implementations.implementation import DIRECT, Implementation
from autopipe.schedules.implementations.winograd import winograd2, winograd4

IMPLEMENTATIONS: Final[tuple[Implementation, ...]] = (winograd2, winograd4)
"""Each with `NAME`, `FAST`, `rewrite` and `gain`."""


def rewrites() -> tuple[Implementation, ...]:
    """Return those that other packages register, then ours. Raises SetupError if one is broken."""
    own = {DIRECT, *(each.NAME for each in IMPLEMENTATIONS)}
    found = extensions.registered(extensions.IMPLEMENTATIONS, own)
    return (*(each.load() for each in found.values()), *IMPLEMENTATIONS)
