"""Names of implementations: ours, and those that installed packages register."""

from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

OURS: Final = ("direct", "winograd2", "winograd4")
"""The implementations that are part of autopipe."""


def _known(glob: str) -> str:
    if any(fnmatchcase(name, glob) for name in OURS):
        return glob
    from autopipe import extensions

    group = extensions.IMPLEMENTATIONS
    registered = [each.name for each in extensions.installed() if each.group == group]
    if not any(fnmatchcase(name, glob) for name in registered):
        known = " or ".join(repr(each) for each in (*OURS, *registered))
        raise PydanticKnownError("literal_error", {"expected": known})
    return glob


ImplementationGlob = Annotated[str, AfterValidator(_known), Field(examples=list(OURS))]
"""A glob that one of `OURS` fits, or an installed entry point of `autopipe.implementations`."""
