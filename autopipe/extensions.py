"""Extensions of other packages, found by their entry points and imported on use.

A package registers an engine under `autopipe.engines` (a callable that takes the conditions), a
template under `autopipe.templates` (an instance of a class that derives from `Template`), an
implementation under `autopipe.implementations` (a module or an object). They have the attributes
below.
"""

import ast
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata, util
from importlib.machinery import PathFinder, SourceFileLoader
from typing import Any, Final, NamedTuple

from autopipe.errors import SetupError

ENGINES: Final = "autopipe.engines"
TEMPLATES: Final = "autopipe.templates"
IMPLEMENTATIONS: Final = "autopipe.implementations"

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    ENGINES: ("__call__",),
    TEMPLATES: (
        "name", "version", "serves_dynamic", "match", "settings", "fill", "apply",
        "estimate", "prove_at_every_size", "is_asked_last",
    ),
    IMPLEMENTATIONS: ("NAME", "FAST", "rewrite", "gain"),
}  # fmt: skip
"""The groups of entry points, and the attributes that their objects must have."""

_OWN_NAME: Final[Mapping[str, str]] = {TEMPLATES: "name", IMPLEMENTATIONS: "NAME"}
"""Attribute with the required name of the entry point."""


class Extension(NamedTuple):
    """One entry point of an installed distribution."""

    group: str
    name: str
    distribution: str
    version: str
    entry: metadata.EntryPoint

    def __str__(self) -> str:
        """Format kind, name and distribution."""
        kind = self.group.removeprefix("autopipe.").removesuffix("s")
        return f"{kind} {self.name} of {self.distribution} {self.version}"

    def load(self) -> Any:  # noqa: ANN401 - as its group says
        """Import it. Raises SetupError if that fails or required attributes are missing."""
        try:
            value = self.entry.load()
        except Exception as error:  # whatever a package may raise while it is imported
            reason = " ".join(str(error).split())
            raise SetupError(f"{self}: {type(error).__name__}: {reason}") from error
        if self.group == TEMPLATES and isinstance(value, type):
            raise SetupError(f"{self}: {self.entry.value} is a class; name an instance of it")
        missing = [name for name in NAMES[self.group] if not hasattr(value, name)]
        if missing:
            raise SetupError(f"{self}: {self.entry.value} lacks {', '.join(missing)}")
        attribute = _OWN_NAME.get(self.group)
        own_name = getattr(value, attribute) if attribute else self.name
        if self.name != own_name:
            raise SetupError(f"{self}: {attribute} in {self.entry.value} is {own_name!r}")
        if self.group == TEMPLATES and value.version != self.read_template_version():
            raise SetupError(
                f"{self}: the class of {self.entry.value} has to state its version as a number,"
                f" beside `name = {self.name!r}`: keys read it without importing the module"
            )
        return value

    def read_template_version(self) -> int | None:
        """Read the version of a template's class from its source, or None.

        The module is not imported, because it imports TVM.
        """
        for node in _parse_module(self.entry.module).body:
            if isinstance(node, ast.ClassDef):
                values = _read_constants(node)
                if values.get("name") == self.name:
                    version = values.get("version")
                    return version if type(version) is int else None
        return None


def _parse_module(name: str) -> ast.Module:
    """Parse a module without importing it or its packages.

    The tree is empty if the source cannot be found or read.
    """
    package, *parts = name.split(".")
    try:
        spec = util.find_spec(package)
        for part in parts:
            locations = spec.submodule_search_locations if spec else None
            spec = PathFinder.find_spec(part, locations) if locations else None
        loader = spec.loader if spec else None
        source = loader.get_source(loader.name) if isinstance(loader, SourceFileLoader) else ""
        with warnings.catch_warnings(action="ignore"):  # an import reports them
            return ast.parse(source or "")
    except (ImportError, OSError, RecursionError, SyntaxError, ValueError):
        return ast.Module([], [])


def _read_constants(node: ast.ClassDef) -> dict[str, object]:
    """Return the constants that the body of a class assigns, by name."""
    values: dict[str, object] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        if isinstance(statement.value, ast.Constant):
            names = (target.id for target in targets if isinstance(target, ast.Name))
            values |= dict.fromkeys(names, statement.value.value)
    return values


@cache
def installed() -> tuple[Extension, ...]:
    """Return all installed extensions, in an order that does not depend on the file system."""
    entries = metadata.entry_points()  # reads those of all distributions
    extensions = [
        Extension(group, entry.name, entry.dist.name, entry.dist.version, entry)
        for group in NAMES
        for entry in entries.select(group=group)
        if entry.dist is not None
    ]
    return tuple(
        sorted(extensions, key=lambda entry: (entry.group, entry.distribution, entry.name))
    )


def list_distributions() -> dict[str, str]:
    """Return the versions of the distributions with extensions, by name."""
    return {extension.distribution: extension.version for extension in installed()}


def read_template_versions() -> dict[str, int | None]:
    """Return the versions of the templates of other packages by name, without importing them."""
    templates = (extension for extension in installed() if extension.group == TEMPLATES)
    return {extension.name: extension.read_template_version() for extension in templates}


def list_registered(group: str, own_names: Iterable[str] = ()) -> dict[str, Extension]:
    """Return the extensions of a group by name, in the order of their distributions.

    Raises SetupError if two have the same name, or one has a name in `own_names`.
    """
    owners = dict.fromkeys(own_names, "autopipe")
    extensions: dict[str, Extension] = {}
    for extension in installed():
        if extension.group == group:
            if extension.name in owners:
                raise SetupError(
                    f"{extension}: {owners[extension.name]} has one of that name; uninstall it"
                )
            owners[extension.name] = extension.distribution
            extensions[extension.name] = extension
    return extensions


def format_with_owner(group: str, name: str) -> str:
    """Return a name with the distribution that registers it, if that is not autopipe."""
    owners = (one for one in installed() if (one.group, one.name) == (group, name))
    owner = next(owners, None)
    return name if owner is None else f"{name} of {owner.distribution} {owner.version}"


def check_extensions(_argument: object = None, _emit: object = None) -> str:
    """Import all installed extensions, and list them in a line.

    Raises SetupError if one is broken. The parameters are those of a call in a child process.
    """
    extensions = [extension for group in NAMES for extension in list_registered(group).values()]
    for extension in extensions:
        extension.load()
    return ", ".join(map(str, extensions)) or "none"
