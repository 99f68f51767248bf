"""Artifacts: folders in the store that a stage wrote, of one kind each."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """Kinds of artifacts. An input accepts exactly one kind."""

    MODEL = "model"
    MODULE = "module"
    LOWERED = "lowered"
    TASKS = "tasks"
    RECORDS = "records"
    LIBRARY = "library"
    REPORT = "report"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An immutable directory in the store, named by the digest of its content."""

    kind: Kind
    digest: str
    path: Path
