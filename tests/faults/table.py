"""The cases of `cases/*.yaml`: what may go wrong, and what we promise then."""

from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, or a guarantee."""

    id: str
    """Letter of its list, and its number: `C3`."""
    case: str
    """What happens; of a guarantee, what is guaranteed."""
    promise: str | None = None
    """How that ends; of a guarantee, how it is kept. None for a case that is not taken."""
    not_taken: str | None = None
    """Why the case is not taken at all."""
    without: str | None = None
    """What of it is not taken."""


@dataclass(frozen=True, slots=True)
class Cases:
    """A list of cases."""

    title: str
    cases: tuple[Case, ...]


def read(folder: Path = FOLDER) -> tuple[Cases, ...]:
    """Return all lists, by letter. Raises ValueError for a case that is not one."""
    return tuple(_read(file) for file in sorted(folder.glob("*.yaml")))


def _read(file: Path) -> Cases:
    document = yaml.safe_load(file.read_text("utf-8"))
    found = tuple(Case(id=name, **fields) for name, fields in document["cases"].items())
    for number, case in enumerate(found, 1):
        if case.id != f"{file.stem.upper()}{number}":
            raise ValueError(f"{file.name}: {case.id} is not number {number} of its list")
        if (case.promise is None) == (case.not_taken is None):
            raise ValueError(f"{file.name}: {case.id} needs either `promise` or `not_taken`")
    return Cases(document["title"], found)
