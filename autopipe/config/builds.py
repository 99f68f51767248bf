"""Section `builds`: several builds of one pipeline file, and the document of each.

A build is the file with some fields changed. Its mappings are merged into those of the file, and
any other value replaces the one of the file, as `--set` would.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from pydantic import StringConstraints, model_validator

from autopipe.config.contradiction import Contradiction, raise_contradictions
from autopipe.config.document import REFUSED, Document
from autopipe.config.frozen import Frozen
from autopipe.config.override import set_field
from autopipe.config.pipeline import NAME, Pipeline
from autopipe.config.problem import Diagnostic, Field, Place

FIELD: Final = "builds"
SHARED: Final = ("version", "name", FIELD)
"""Fields that no build has of its own."""

BuildName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class Builds(Frozen, frozen=True):
    """The builds of a pipeline file, before they are merged into it."""

    builds: dict[BuildName, dict[str, Any]] = {}
    """Several builds of this file by name, such as one a processor, each with the fields that
    differ: mappings are merged into those of the file, anything else replaces what the file has. A
    build is called `<name>-<build>`, and has a package and a lock of its own."""

    @model_validator(mode="after")
    def _check_shared_fields(self) -> Self:
        raise_contradictions(FIELD, self._shared())
        return self

    def _shared(self) -> Iterator[Contradiction]:
        for build, fields in self.builds.items():
            for name in SHARED:
                if name in fields:
                    yield (FIELD, build, name), fields[name], "is the same for all builds"


class PipelineFile(Builds, Pipeline, frozen=True):
    """A whole pipeline file, version 1."""


def build_names(document: Document) -> tuple[str, ...]:
    """Return the names of the builds of a document, in its order. Raises ValidationError."""
    value = document.value
    if not isinstance(value, dict) or value.get(FIELD, REFUSED) is REFUSED:
        return ()
    return tuple(Builds.model_validate({FIELD: value[FIELD]}, strict=True).builds)


def select_build(document: Document, name: str | None) -> Document:
    """Return the document of one build, or of the file without its builds.

    It has no problems yet: those of the whole document are not the build's.
    """
    whole = document.value
    if not isinstance(whole, dict) or FIELD not in whole:
        return replace(document, problems=[])
    value = {key: field for key, field in whole.items() if key != FIELD}
    made = Document(value, _remove_builds(document.keys), _remove_builds(document.values))
    if name is None:
        return made
    at = (FIELD, name)
    for field, new in _list_changed_fields(value, whole[FIELD][name]):
        keys, values = (
            _rebase_places(places, at, field) for places in (document.keys, document.values)
        )
        made = set_field(made, field, Document(new, keys, values), values[field])
    return made


def name_build(document: Document, name: str | None) -> Document:
    """Return the document of a build under the name `<name>-<build>`."""
    value = document.value
    called = value.get("name") if isinstance(value, dict) else None
    if name is None or not isinstance(called, str) or not re.fullmatch(NAME, called):
        return document  # no name, which is said of all builds at once
    assert isinstance(value, dict)  # noqa: S101 - it has a name
    return replace(document, value={**value, "name": f"{called}-{name}"})


def join_problems(
    document: Document, found: Mapping[str | None, list[Diagnostic]]
) -> Iterator[Diagnostic]:
    """Yield the problems of all builds: those of the file once, the others under their build."""
    counts = Counter(each for diagnostics in found.values() for each in set(diagnostics))
    shared: set[Diagnostic] = set()
    for name, diagnostics in found.items():
        own = _find_build_places(document, name)
        for diagnostic in dict.fromkeys(diagnostics):
            alone = counts[diagnostic] == 1 < len(found)
            if name is not None and (alone or diagnostic.place in own):
                yield replace(diagnostic, field=(FIELD, name, *diagnostic.field))
            elif diagnostic not in shared:
                shared.add(diagnostic)
                yield diagnostic


def _list_changed_fields(
    old: object, new: object, at: Field = ()
) -> Iterator[tuple[Field, object]]:
    """Yield each field that a build sets, and its value."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in new.items():
            yield from _list_changed_fields(old.get(key), value, (*at, key))
    else:
        yield at, new


def _remove_builds(places: dict[Field, Place]) -> dict[Field, Place]:
    return {field: place for field, place in places.items() if field[:1] != (FIELD,)}


def _rebase_places(places: dict[Field, Place], at: Field, field: Field) -> dict[Field, Place]:
    """Return the places of a field of a build, and of what is in it, as if it were the file's."""
    start = (*at, *field)
    return {each[len(at) :]: place for each, place in places.items() if each[: len(start)] == start}


def _find_build_places(document: Document, name: str | None) -> set[Place]:
    """Return where the fields of a build are written."""
    return {
        place
        for places in (document.keys, document.values)
        for field, place in places.items()
        if name is not None and field[:2] == (FIELD, name)
    }
