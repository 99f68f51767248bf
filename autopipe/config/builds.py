"""Section `builds`: several builds of one pipeline file, and the document of each.

A build is the file with some fields changed. Its mappings are merged into those of the file, and
any other value replaces the one of the file, as `--set` would.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Self

from pydantic import StringConstraints, model_validator

from autopipe.config.document import REFUSED, Document
from autopipe.config.frozen import Contradiction, Frozen, raise_contradictions
from autopipe.config.override import set_field
from autopipe.config.pipeline import NAME
from autopipe.config.problem import Diagnostic, Field, Place

FIELD: Final = "builds"
SHARED: Final = ("version", "name", FIELD)
"""Fields that all builds of a file share."""

BuildName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class Builds(Frozen, frozen=True):
    """The builds of a pipeline file, before they are merged into it."""

    builds: dict[BuildName, dict[str, Any]] = {}
    """Several builds of this file by name, such as one per processor, each with its changed fields:
    mappings are merged into those of the file, other values replace those of the file. A build is
    named `<name>-<build>`, and has a package and a lock of its own."""

    @model_validator(mode="after")
    def _check_shared_fields(self) -> Self:
        raise_contradictions(FIELD, self._shared())
        return self

    def _shared(self) -> Iterator[Contradiction]:
        for build, fields in self.builds.items():
            for name in SHARED:
                if name in fields:
                    yield (FIELD, build, name), fields[name], "is the same for all builds"


def build_names(document: Document) -> tuple[str, ...]:
    """Return the names of the builds of a document, in its order. Raises ValidationError."""
    value = document.value
    if not isinstance(value, dict) or value.get(FIELD, REFUSED) is REFUSED:
        return ()
    return tuple(Builds.model_validate({FIELD: value[FIELD]}, strict=True).builds)


def select_build(document: Document, name: str | None) -> Document:
    """Select the document of one build, or of the file without its builds.

    Its list of problems is empty: those of the whole document are not the build's.
    """
    file_value = document.value
    if not isinstance(file_value, dict) or FIELD not in file_value:
        return document._replace(problems=[])
    value = {key: field for key, field in file_value.items() if key != FIELD}
    build_document = Document(
        value, _remove_builds(document.keys), _remove_builds(document.values), []
    )
    if name is None:
        return build_document
    at = (FIELD, name)
    for field, new in _list_changed_fields(value, file_value[FIELD][name]):
        keys, values = (
            _rebase_places(places, at, field) for places in (document.keys, document.values)
        )
        build_document = set_field(
            build_document, field, Document(new, keys, values, []), values[field]
        )
    return build_document


def name_build(document: Document, name: str | None) -> Document:
    """Return the document of a build under the name `<name>-<build>`."""
    value = document.value
    pipeline_name = value.get("name") if isinstance(value, dict) else None
    if name is None or not isinstance(pipeline_name, str) or not re.fullmatch(NAME, pipeline_name):
        return document  # an invalid name is reported once for all builds
    assert isinstance(value, dict)  # noqa: S101 - it has a name
    return document._replace(value={**value, "name": f"{pipeline_name}-{name}"})


def join_problems(
    document: Document, diagnostics_by_build: Mapping[str | None, list[Diagnostic]]
) -> Iterator[Diagnostic]:
    """Yield the problems of all builds: shared ones once, others under their build."""
    counts = Counter(
        each for diagnostics in diagnostics_by_build.values() for each in set(diagnostics)
    )
    yielded: set[Diagnostic] = set()
    for name, diagnostics in diagnostics_by_build.items():
        build_places = _find_build_places(document, name)
        for diagnostic in dict.fromkeys(diagnostics):
            is_unique = counts[diagnostic] == 1 < len(diagnostics_by_build)
            if name is not None and (is_unique or diagnostic.place in build_places):
                yield diagnostic._replace(field=(FIELD, name, *diagnostic.field))
            elif diagnostic not in yielded:
                yielded.add(diagnostic)
                yield diagnostic


def _list_changed_fields(
    old: object, new: object, at: Field = ()
) -> Iterator[tuple[Field, object]]:
    """Yield each field that a build sets, with its value."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in new.items():
            yield from _list_changed_fields(old.get(key), value, (*at, key))
    else:
        yield at, new


def _remove_builds(places: dict[Field, Place]) -> dict[Field, Place]:
    return {field: place for field, place in places.items() if field[:1] != (FIELD,)}


def _rebase_places(places: dict[Field, Place], at: Field, field: Field) -> dict[Field, Place]:
    """Rebase the places of a build's field and its contents to the fields of the file."""
    start = (*at, *field)
    return {each[len(at) :]: place for each, place in places.items() if each[: len(start)] == start}


def _find_build_places(document: Document, name: str | None) -> set[Place]:
    """Return the places of the fields of a build."""
    return {
        place
        for places in (document.keys, document.values)
        for field, place in places.items()
        if name is not None and field[:2] == (FIELD, name)
    }
