"""Versions of installed distributions."""

import re
from functools import cache
from importlib import metadata
from typing import Final

_VERSION: Final = re.compile(r"^Version: *(\S+)", re.MULTILINE)


@cache
def find_installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed.

    `metadata.version` parses all lines of its metadata as an email, licences included, which
    takes 6 ms for OpenBLAS.
    """
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    header = _VERSION.search(installed.read_text("METADATA") or "")
    return header[1] if header else installed.version
