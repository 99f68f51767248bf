"""JSON documents of artifacts: canonical when written, validated when read."""

from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

from pydantic import BaseModel, ValidationError

from autopipe import foreign
from autopipe.config.frozen import Frozen
from autopipe.config.problem import format_first_error
from autopipe.store.canonical import pretty

LARGEST: Final = 256 << 20
"""Maximum bytes of a file that is read into memory."""

_Model = TypeVar("_Model", bound=BaseModel)


class Part(Frozen, frozen=True, extra="ignore"):
    """A part of a document. Unknown fields of later releases are ignored."""

    def document(self) -> dict[str, Any]:
        """Serialize it as JSON."""
        return self.model_dump(mode="json")


class ArtifactDocument(Part, frozen=True):
    """A document with its own file in an artifact."""

    FILE: ClassVar[str]
    """Name of that file."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it from an artifact.

        Raises OSError, and MalformedError with a message of one line.
        """
        return parse_document(cls, foreign.read(folder / cls.FILE, LARGEST))

    def write(self, folder: Path) -> None:
        """Write it into an artifact, deterministically."""
        (folder / self.FILE).write_text(pretty(self.document()), encoding="utf-8")


def parse_document(kind: type[_Model], data: bytes | str) -> _Model:
    """Parse JSON as a value of this type, with strict types.

    Raises MalformedError with a message of one line.
    """
    foreign.parse(data)  # pydantic's parser accepts more than JSON
    return validate_document(kind, data)


def validate_document(kind: type[_Model], data: bytes | str) -> _Model:
    """Validate like `parse_document` JSON that `foreign` has checked before."""
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise foreign.MalformedError(format_first_error(error)) from None
