"""Names of implementations: ours, libraries, and those that installed packages register."""

from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from autopipe.libraries import LIBRARIES

OURS: Final = ("direct", "winograd2", "winograd4")
"""The implementations that are part of autopipe."""


def _known(glob: str) -> str:
    if any(fnmatchcase(name, glob) for name in OURS):
        return glob
    libraries = [each for each in LIBRARIES if fnmatchcase(each.name, glob)]
    if any(each.version() for each in libraries):
        return glob
    from autopipe import extensions

    group = extensions.IMPLEMENTATIONS
    registered = [each.name for each in extensions.installed() if each.group == group]
    if any(fnmatchcase(name, glob) for name in registered):
        return glob
    if libraries:
        raise ValueError(libraries[0].missing())
    names = (*OURS, *(each.name for each in LIBRARIES), *registered)
    raise PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, names))})


ImplementationGlob = Annotated[
    str,
    AfterValidator(_known),
    Field(examples=[*OURS, *(each.name for each in LIBRARIES if each.distribution)]),
]
"""A glob that one of `OURS` or an installed library fits, or an installed entry point of
`autopipe.implementations`."""
