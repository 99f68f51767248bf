"""Names of implementations: ours, libraries, and those that installed packages register."""

from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from autopipe.libraries import LIBRARIES

OURS: Final = ("winograd2", "winograd4", "winograd6")
"""The implementations of autopipe, in the order of trial."""

NAMES: Final = ("direct", *OURS)
"""All implementations: `direct` is the lowered function itself."""


def _check_implementation(glob: str) -> str:
    if any(fnmatchcase(name, glob) for name in NAMES):
        return glob
    libraries = [library for library in LIBRARIES if fnmatchcase(library.name, glob)]
    if any(library.version() for library in libraries):
        return glob
    from autopipe import extensions

    group = extensions.IMPLEMENTATIONS
    registered_names = [entry.name for entry in extensions.installed() if entry.group == group]
    if any(fnmatchcase(name, glob) for name in registered_names):
        return glob
    if libraries:
        raise ValueError(libraries[0].missing())
    names = (*NAMES, *(library.name for library in LIBRARIES), *registered_names)
    raise PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, names))})


ImplementationGlob = Annotated[
    str,
    AfterValidator(_check_implementation),
    Field(examples=[*NAMES, *(library.name for library in LIBRARIES if library.distribution)]),
]
"""A glob that one of `NAMES` or an installed library fits, or an installed entry point of
`autopipe.implementations`."""
