"""Work on tasks that failed in earlier runs, so that it does not cost its deadline in every run.

A run gives up what fails twice, in two processes. That may have been the machine's fault: it was
busy, its disk full. So the next run tries it once more, and only what fails there as well is not
tried by later runs, for a month. It holds for the same loops, work, target, limits and versions.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, Final

import tvm_ffi

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.environment.facet import Facet
from autopipe.processes import contained
from autopipe.safety.job import Piece
from autopipe.store import files

ENOUGH: Final = 2
"""Runs in which a piece of work has to fail."""

_ASIDE: Final = "failed"
"""Where failures are put, beside this folder."""

_LARGEST: Final = 1 << 16
_LONG: Final = 500

_LASTS: Final = timedelta(days=30)
"""How long nobody tries it again."""

_FACETS: Final = (Facet.TARGET, Facet.TVM, Facet.LIBRARIES, Facet.EXTENSIONS, Facet.TEMPLATES)
"""What may make work end otherwise, of all that both `tune` and `build` see."""


@dataclass(frozen=True, slots=True)
class Former:
    """How a piece of work ended in earlier runs."""

    how: str
    folder: str
    """Where it is put aside."""
    runs: int
    """In how many runs it failed."""
    last: str
    """When it failed last, in UTC, as ISO 8601."""

    @property
    def final(self) -> bool:
        """Whether another attempt would be in vain."""
        age = datetime.now(UTC) - datetime.fromisoformat(self.last)
        return self.runs >= ENOUGH and timedelta() <= age < _LASTS


@dataclass(slots=True)
class Hopeless:
    """The register of all runs: a folder with one file for each piece of work that failed."""

    folder: Path
    facts: Mapping[Facet, Mapping[str, object]]
    fast_algorithms: bool = True
    counted: set[str] = field(default_factory=set)
    """Pieces that failed in this run."""

    def __bool__(self) -> bool:
        """Return whether anything has ever failed here; in most stores nothing has."""
        return self.folder.is_dir()

    def recall(self, piece: Piece) -> Former | None:
        """Return how it ended in earlier runs; None if it did not fail, or nobody knows."""
        if not self:
            return None
        try:
            data = files.read_or_discard(self.folder / self._digest_piece(piece), _LARGEST)
            content = foreign.parse_object(data or b"")
            found = Former(**content)
            _ = found.final
        except (OSError, ValueError, TypeError):  # damaged: it is tried again
            return None
        texts = isinstance(found.how, str) and isinstance(found.folder, str)
        if not texts or type(found.runs) is not int:
            return None
        place = self.folder.with_name(_ASIDE) / PurePath(found.folder).name  # wherever it says
        return replace(found, how=format_value(found.how, _LONG), folder=str(place))

    def add(self, piece: Piece, how: str, folder: str) -> int:
        """Remember a failure; return in how many runs there was one, this one included."""
        name, before = self._digest_piece(piece), self.recall(piece)
        runs = (before.runs if before else 0) + (name not in self.counted)
        self.counted.add(name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        document = {"how": how, "folder": folder, "runs": runs, "last": now}
        with suppress(OSError):  # it is forgotten then
            self.folder.mkdir(parents=True, exist_ok=True)
            files.replace(self.folder / name, json.dumps(document).encode(), self.folder)
        return runs

    def forget(self, piece: Piece) -> None:
        """Take back what is remembered: it went well this time."""
        if self:
            with suppress(OSError):
                (self.folder / self._digest_piece(piece)).unlink(missing_ok=True)

    def _digest_piece(self, piece: Piece) -> str:
        """Digest all that decides how it ends: sha256, 64 hex digits."""
        loops = (piece.workload, piece.scheduled)
        asked: Mapping[str, Any] = piece.problem or {}
        content = [
            piece.doing, piece.engine, piece.implementation, piece.schedule,
            [loop and tvm_ffi.structural_hash(loop["main"]) for loop in loops],
            [asked.get(name) for name in ("batch", "seed", "tuner")],
            [self.facts.get(facet) for facet in _FACETS], self.fast_algorithms,
            version("autopipe"), contained.SECONDS, contained.MEMORY,
        ]  # fmt: skip
        text = json.dumps(content, sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()
