"""Other ways to compute a function than it was lowered to, one file each."""

from pkgutil import resolve_name
from typing import Final

from autopipe import extensions
from autopipe.config.implementation_name import OURS
from autopipe.schedules.implementations.implementation import DIRECT, Implementation

IMPLEMENTATIONS: Final[tuple[Implementation, ...]] = tuple(map(resolve_name, OURS.values()))
"""Each with `NAME`, `FAST`, `rewrite` and `gain`."""


def rewrites() -> tuple[Implementation, ...]:
    """Return those that other packages register, then ours. Raises SetupError if one is broken."""
    own = {DIRECT, *(each.NAME for each in IMPLEMENTATIONS)}
    found = extensions.registered(extensions.IMPLEMENTATIONS, own)
    return (*(each.load() for each in found.values()), *IMPLEMENTATIONS)
