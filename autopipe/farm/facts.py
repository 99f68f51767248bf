"""The facts of a machine of a farm: versions that have to be equal, and the device."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

from autopipe.config.problem import format_value
from autopipe.environment.facet import Facet, Facts
from autopipe.store.canonical import digest_json

VERSIONS: Final = (Facet.TVM, Facet.LIBRARIES, Facet.EXTENSIONS)
"""Facets that have to be equal on all machines; stage *tune* reads them."""

_LONGEST: Final = 120


def find_autopipe_version() -> str:
    """Return the version of autopipe."""
    return metadata.version("autopipe")


def list_versions(facts: Facts) -> dict[str, str]:
    """Return the versions in the facts of a machine, by name."""
    versions = {
        name: str(value)
        for facet in VERSIONS
        for name, value in sorted(facts[facet].items())
        if value is not None
    }
    return {"autopipe": find_autopipe_version(), **versions}


def describe_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Describe each difference, such as `tvm 0.27.0 and not 0.28.0`, with theirs first."""
    names = sorted(ours.keys() | theirs.keys())
    return [
        f"{format_value(name)} {_format_value(theirs.get(name))} and not "
        f"{_format_value(ours.get(name))}"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def list_machine_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Describe the differences between the facts of two machines."""
    return [
        difference
        for part in ("versions", "device", "processor", "caches")
        for difference in describe_differences(ours.get(part, {}), theirs.get(part, {}))
    ]


def fingerprint_device(device: Mapping[str, Any]) -> str:
    """Digest the facts of a device: sha256, 16 hex digits."""
    return digest_json(dict(device))[:16]


def _format_value(value: object) -> str:
    return "missing" if value is None else format_value(str(value), _LONGEST)
