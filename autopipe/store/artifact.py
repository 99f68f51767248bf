"""Artifacts: folders in the store that a stage wrote, of one kind each."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


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


class Artifact(NamedTuple):
    """An immutable directory in the store, named by the digest of its content."""

    kind: Kind
    digest: str
    path: Path
