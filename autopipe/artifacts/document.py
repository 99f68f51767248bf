"""A JSON document in an artifact: written in one form, read as its type or refused in a line."""

from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

from pydantic import BaseModel, ValidationError

from autopipe import foreign
from autopipe.config.frozen import Frozen
from autopipe.config.problem import format_first_error
from autopipe.store.canonical import pretty

LARGEST: Final = 256 << 20
"""Bytes of a file that is read at once."""

_Model = TypeVar("_Model", bound=BaseModel)


class Part(Frozen, frozen=True, extra="ignore"):
    """A part of a document. What a later release adds to it is passed over."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return self.model_dump(mode="json")


class ArtifactDocument(Part, frozen=True):
    """A document, which has its own file in an artifact."""

    FILE: ClassVar[str]
    """Name of that file."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it from an artifact.

        Raises OSError, and MalformedError that says in a line what is wrong.
        """
        return parse_document(cls, foreign.read(folder / cls.FILE, LARGEST))

    def write(self, folder: Path) -> None:
        """Write it into an artifact; the same document gives the same bytes."""
        (folder / self.FILE).write_text(pretty(self.document()), encoding="utf-8")


def parse_document(kind: type[_Model], data: bytes | str) -> _Model:
    """Read JSON as a value of this type, where every value has the type it should have.

    Raises MalformedError that says in a line what is wrong.
    """
    foreign.parse(data)  # pydantic's own reader takes more than is JSON
    return validate_document(kind, data)


def validate_document(kind: type[_Model], data: bytes | str) -> _Model:
    """Read as `parse_document` does what `foreign` has read before."""
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise foreign.MalformedError(format_first_error(error)) from None
