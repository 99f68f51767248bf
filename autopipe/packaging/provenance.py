"""The manifest of a package: an in-toto statement of SLSA provenance.

It depends neither on the machine nor on the time, so that the same build writes the same bytes.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import quote

from pydantic import AfterValidator, Field
from pydantic.alias_generators import to_camel

from autopipe import foreign
from autopipe.artifacts.document import parse_document
from autopipe.config.frozen import Frozen
from autopipe.config.model import Digest
from autopipe.errors import PackageError
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, ManifestFile, Needs

MODEL: Final = "model"


class _StatementPart(
    Frozen, frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
):
    """A part of the statement; its fields are serialized in camelCase, as in the standards."""


class Sha256(_StatementPart, frozen=True):
    """A digest set of one digest."""

    sha256: Digest


class Size(_StatementPart, frozen=True):
    """Annotation of a file."""

    size: int = Field(ge=0)
    """Bytes."""


class Subject(_StatementPart, frozen=True):
    """A file of the package."""

    name: str
    digest: Sha256
    annotations: Size


def _check_distinct_names(subjects: tuple[Subject, ...]) -> tuple[Subject, ...]:
    if len({subject.name for subject in subjects}) < len(subjects):
        raise ValueError("a file is listed twice")
    return subjects


class Origin(_StatementPart, frozen=True):
    """Annotation of a model."""

    synthesized: bool
    """Whether the weights are synthesized instead of the model's."""


class Source(_StatementPart, frozen=True):
    """The model file."""

    name: Literal["model"] = MODEL
    digest: Sha256
    annotations: Origin


class Release(_StatementPart, frozen=True):
    """Annotation of a Python package."""

    version: str


class Ingredient(_StatementPart, frozen=True):
    """A Python package that the build depends on."""

    name: str
    uri: str
    """Package URL, with the version."""
    annotations: Release


class Request(_StatementPart, frozen=True):
    """The request of the user."""

    pipeline: str = Field(min_length=1, max_length=100)
    """Name of the pipeline."""
    configuration: dict[str, Any]
    """The sections that determine the build, defaults and overrides included."""


class Definition(_StatementPart, frozen=True):
    """The inputs of the build."""

    build_type: Literal["urn:autopipe:package:2"] = "urn:autopipe:package:2"
    """The package format is its version."""
    external_parameters: Request
    internal_parameters: Needs
    resolved_dependencies: tuple[Source | Ingredient, ...]


class Builder(_StatementPart, frozen=True):
    """The builder."""

    id: Literal["urn:autopipe:run"] = "urn:autopipe:run"
    version: dict[str, str]
    """Versions of autopipe and of the compilers below it."""


class Details(_StatementPart, frozen=True):
    """Details of the build."""

    builder: Builder


class Predicate(_StatementPart, frozen=True):
    """SLSA provenance, version 1."""

    build_definition: Definition
    run_details: Details


class Statement(_StatementPart, frozen=True):
    """The contents of `manifest.json` in a package of format 2."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(
        "https://in-toto.io/Statement/v1", alias="_type"
    )
    subject: Annotated[tuple[Subject, ...], AfterValidator(_check_distinct_names)]
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = "https://slsa.dev/provenance/v1"
    predicate: Predicate

    @property
    def format(self) -> int:
        """Return the version of the package format."""
        return 2

    @property
    def name(self) -> str:
        """Return the name of the pipeline."""
        return self.predicate.build_definition.external_parameters.pipeline

    @property
    def needs(self) -> Needs:
        """Return the requirements of opening the package."""
        return self.predicate.build_definition.internal_parameters

    @property
    def files(self) -> dict[str, ManifestFile]:
        """Return the files of the package other than the manifest."""
        return {
            subject.name: ManifestFile(size=subject.annotations.size, sha256=subject.digest.sha256)
            for subject in self.subject
        }


class Component(NamedTuple):
    """A component of a package: a file, a dependency, or a tool that built it."""

    name: str
    version: str = ""
    purl: str = ""
    sha256: str = ""


def describe_ingredient(package: str, version: str) -> Ingredient:
    """Describe a Python package."""
    uri = _to_package_url(package, version)
    return Ingredient(name=package, uri=uri, annotations=Release(version=version))


def describe_subjects(files: dict[str, ManifestFile]) -> tuple[Subject, ...]:
    """Describe files of a package."""
    return tuple(
        Subject(name=name, digest=Sha256(sha256=file.sha256), annotations=Size(size=file.size))
        for name, file in sorted(files.items())
    )


def list_components(statement: Statement) -> Iterator[Component]:
    """Yield the components of a package."""
    for name, file in statement.files.items():
        if name != COMPONENTS:
            yield Component(name, sha256=file.sha256)
    for dependency in statement.predicate.build_definition.resolved_dependencies:
        if isinstance(dependency, Source):
            yield Component(dependency.name, sha256=dependency.digest.sha256)
        else:
            yield Component(dependency.name, dependency.annotations.version, dependency.uri)
    for name, version in statement.predicate.run_details.builder.version.items():
        yield Component(name, version, _to_package_url(name, version) if name == "autopipe" else "")


def parse_manifest(text: bytes) -> Statement:
    """Parse a manifest. Raises PackageError."""
    try:
        return parse_document(Statement, text)
    except foreign.MalformedError as error:
        raise PackageError(f"{MANIFEST} does not fit: {error}") from None


def _to_package_url(package: str, version: str) -> str:
    return f"pkg:pypi/{package}@{quote(version, safe='')}"
