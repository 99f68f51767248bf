"""From one version of the lock to the next; there is one version so far.

A release that changes the lock adds a function from document to document to `STEPS`, in a file of
its own. Nobody writes comments into a lock, so it is written anew.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

Step = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes what a lock of one version says, and returns what one of the next would."""

STEPS: Final[Mapping[int, Step]] = {}
"""By the version that is left behind."""


def upgrade(document: dict[str, Any], steps: Mapping[int, Step] = STEPS) -> dict[str, Any]:
    """Take every step there is from the version of a document on."""
    while type(version := document.get("version")) is int and version in steps:
        document = {**steps[version](document), "version": version + 1}
    return document
