"""Section `package`: the file that is shipped."""

from typing import Literal

from autopipe.config.frozen import Frozen


class Package(Frozen, frozen=True):
    """The deployable file; `package: null` stops before it."""

    format: Literal["tar"] = "tar"
    """One uncompressed tar of library, weights and manifest, the same bytes when made again."""
