"""What other packages add to autopipe, found by their entry points and imported where it is used.

A package registers an engine under `autopipe.engines` (a callable that takes the conditions), a
template under `autopipe.templates`, an implementation under `autopipe.implementations` (modules
or objects with the names below).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final

from autopipe.errors import SetupError

ENGINES: Final = "autopipe.engines"
TEMPLATES: Final = "autopipe.templates"
IMPLEMENTATIONS: Final = "autopipe.implementations"

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    ENGINES: ("__call__",),
    TEMPLATES: ("NAME", "VERSION", "match", "settings", "fill", "apply"),
    IMPLEMENTATIONS: ("NAME", "FAST", "rewrite", "gain"),
}
"""The groups of entry points, and the names that what they point at must have."""


@dataclass(frozen=True, slots=True)
class Extension:
    """One entry point of an installed distribution."""

    group: str
    name: str
    distribution: str
    version: str
    entry: metadata.EntryPoint

    def __str__(self) -> str:
        """Say what it is and whose."""
        kind = self.group.removeprefix("autopipe.").removesuffix("s")
        return f"{kind} {self.name} of {self.distribution} {self.version}"

    def load(self) -> Any:  # noqa: ANN401 - as its group says
        """Import it. Raises SetupError if that fails or it is not what its group asks for."""
        try:
            found = self.entry.load()
        except Exception as error:  # whatever a package may raise while it is imported
            reason = " ".join(str(error).split())
            raise SetupError(f"{self}: {type(error).__name__}: {reason}") from error
        missing = [name for name in NAMES[self.group] if not hasattr(found, name)]
        if missing:
            raise SetupError(f"{self}: {self.entry.value} lacks {', '.join(missing)}")
        if "NAME" in NAMES[self.group] and self.name != found.NAME:
            raise SetupError(f"{self}: NAME in {self.entry.value} is {found.NAME!r}")
        return found


@cache
def installed() -> tuple[Extension, ...]:
    """Return all that is installed, in an order that does not depend on the file system."""
    found = [
        Extension(group, entry.name, entry.dist.name, entry.dist.version, entry)
        for group in NAMES
        for entry in metadata.entry_points(group=group)
        if entry.dist is not None
    ]
    return tuple(sorted(found, key=lambda entry: (entry.group, entry.distribution, entry.name)))


def distributions() -> dict[str, str]:
    """Return the versions of the distributions that register anything, by name."""
    return {extension.distribution: extension.version for extension in installed()}


def registered(group: str, own: Iterable[str] = ()) -> dict[str, Extension]:
    """Return the extensions of a group by name, in the order of their distributions.

    Raises SetupError where two have one name, or one has a name of autopipe's `own`.
    """
    owners = dict.fromkeys(own, "autopipe")
    found: dict[str, Extension] = {}
    for extension in installed():
        if extension.group == group:
            if extension.name in owners:
                raise SetupError(
                    f"{extension}: {owners[extension.name]} has one of that name; uninstall it"
                )
            owners[extension.name] = extension.distribution
            found[extension.name] = extension
    return found


def attribute(group: str, name: str) -> str:
    """Return a name with the distribution that registers it, if that is not autopipe."""
    owners = (one for one in installed() if (one.group, one.name) == (group, name))
    owner = next(owners, None)
    return name if owner is None else f"{name} of {owner.distribution} {owner.version}"


def check(_argument: object = None, _emit: object = None) -> str:
    """Import everything that is installed, and return what it is, in a line for people.

    Raises SetupError if anything of it is broken. Takes what a call in a child process brings.
    """
    found = [extension for group in NAMES for extension in registered(group).values()]
    for extension in found:
        extension.load()
    return ", ".join(map(str, found)) or "none"
