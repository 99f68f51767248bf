"""The component list of a package in CycloneDX format: its files and its dependencies."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from autopipe import foreign, libraries
from autopipe.config.problem import format_value
from autopipe.errors import PackageError
from autopipe.packaging.manifest import COMPONENTS, WEIGHTS
from autopipe.packaging.provenance import MODEL, Component, Statement, list_components
from autopipe.store.canonical import digest_json, pretty

if TYPE_CHECKING:
    from cyclonedx.model.component import Component as Entry

_SPACE: Final = UUID("5f1d3c0e-2c53-5b0f-9d1c-6a2b8f6a7e10")
"""Namespace of serial numbers."""


def format_components(statement: Statement) -> str:
    """Format the component list, deterministically."""
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component as Entry
    from cyclonedx.model.component import ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    entries = [_to_bom_entry(component) for component in sorted(list_components(statement))]
    package = Entry(name=statement.name, type=ComponentType.APPLICATION, bom_ref="package")
    bom = Bom(components=entries, metadata=BomMetaData(component=package))
    bom.register_dependency(package, entries)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["metadata"]["timestamp"]
    del document["serialNumber"]
    return pretty({**document, "serialNumber": uuid5(_SPACE, digest_json(document)).urn})


def check_components(text: bytes, statement: Statement) -> None:
    """Raise PackageError unless the list has exactly the components of the manifest."""
    try:
        listed_components = sorted(
            _parse_component(entry) for entry in foreign.parse(text)["components"]
        )
    except foreign.MalformedError as error:
        raise PackageError(f"{COMPONENTS} is no component list: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise PackageError(
            f"{COMPONENTS} is no component list: {format_value(repr(error))}"
        ) from None
    expected_components = sorted(list_components(statement))
    if listed_components != expected_components:
        names = sorted(
            {component.name for component in set(listed_components) ^ set(expected_components)}
        ) or ["what is there twice"]
        differences = format_value(", ".join(names), 300)
        raise PackageError(f"{COMPONENTS} and the manifest differ in {differences}")


def _to_bom_entry(component: Component) -> "Entry":
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component as Entry
    from cyclonedx.model.component import ComponentType
    from cyclonedx.model.license import DisjunctiveLicense
    from packageurl import PackageURL

    kinds = {MODEL: ComponentType.MACHINE_LEARNING_MODEL, WEIGHTS: ComponentType.DATA}
    kind = ComponentType.FILE if component.sha256 else ComponentType.LIBRARY
    licence = _map_licence_files().get(component.name)
    return Entry(
        name=component.name,
        type=kinds.get(component.name, kind),
        version=component.version or None,
        bom_ref=component.purl or component.name,
        purl=PackageURL.from_string(component.purl) if component.purl else None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=component.sha256)]
        if component.sha256
        else (),
        licenses=[DisjunctiveLicense(name=licence)] if licence else (),
    )


def _map_licence_files() -> dict[str, str]:
    """Return the licence file of each library, by its distribution."""
    return {
        library.distribution: library.files[-1].name
        for library in libraries.LIBRARIES
        if library.distribution and library.files
    }


def _parse_component(entry: Mapping[str, Any]) -> Component:
    hashes = [str(digest["content"]) for digest in entry.get("hashes", ())]
    return Component(
        str(entry["name"]), str(entry.get("version", "")), str(entry.get("purl", "")), *hashes
    )
