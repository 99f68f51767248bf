"""Other ways to compute a function than it was lowered to, one file each."""

from typing import Final

from autopipe.schedules.implementation import Implementation

IMPLEMENTATIONS: Final[tuple[Implementation, ...]] = ()
"""Modules with `NAME`, `FAST`, `rewrite` and `gain`."""
