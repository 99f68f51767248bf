"""Section `package`: the deployable file."""

from typing import Literal

from autopipe.config.frozen import Frozen


class Package(Frozen, frozen=True):
    """The deployable file; `package: null` stops before it."""

    format: Literal["tar"] = "tar"
    """One reproducible, uncompressed tar of library, weights and manifest."""
