"""Register of work that failed in earlier runs, so that it does not cost its deadline again.

A run gives up work that fails twice, in two processes. The cause may be the machine: other load, or
a full disk. So the next run tries it once more, and only work that fails there as well is skipped
by later runs, for a month. It holds for the same loops, work, target, limits and versions.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Final

import tvm_ffi
from pydantic import AwareDatetime, BeforeValidator, ConfigDict, StrictInt, TypeAdapter

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.environment.facet import Facet
from autopipe.processes import contained
from autopipe.safety.job import Piece
from autopipe.store import files

ENOUGH: Final = 2
"""Number of failed runs after which a piece of work is skipped."""

_ASIDE: Final = "failed"
"""Name of the quarantine folder, beside this one."""

_LARGEST: Final = 1 << 16
_LONG: Final = 500

_LASTS: Final = timedelta(days=30)
"""Time until a skipped piece is tried again."""

_FACETS: Final = (Facet.TARGET, Facet.TVM, Facet.LIBRARIES, Facet.EXTENSIONS, Facet.TEMPLATES)
"""Facets that may change the result, of those that both `tune` and `build` read."""


@dataclass(frozen=True, slots=True)
class Former:
    """How a piece of work ended in earlier runs."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    how: str
    folder: str
    """Its quarantine folder."""
    runs: StrictInt
    """Number of failed runs."""
    last: Annotated[AwareDatetime, BeforeValidator(lambda at: datetime.fromisoformat(str(at)))]
    """Time of the last failure."""

    @property
    def final(self) -> bool:
        """Whether it is not to be tried again."""
        age = datetime.now(UTC) - self.last
        return self.runs >= ENOUGH and timedelta() <= age < _LASTS


_FORMER: Final = TypeAdapter(Former)


@dataclass(slots=True)
class Hopeless:
    """The register of all runs: a folder with one file for each failed piece of work."""

    folder: Path
    facts: Mapping[Facet, Mapping[str, object]]
    fast_algorithms: bool = True
    counted: set[str] = field(default_factory=set)
    """Pieces that failed in this run."""

    def __bool__(self) -> bool:
        """Return whether there is any failure; most stores have none."""
        return self.folder.is_dir()

    def recall(self, piece: Piece) -> Former | None:
        """Return the failures of a piece in earlier runs; None if there are none."""
        if not self:
            return None
        try:
            data = files.read_or_discard(self.folder / self._digest_piece(piece), _LARGEST)
            former = _FORMER.validate_python(foreign.parse(data or b""))
        except (OSError, ValueError):  # damaged: it is tried again
            return None
        place = self.folder.with_name(_ASIDE) / PurePath(former.folder).name  # ignores its parent
        return replace(former, how=format_value(former.how, _LONG), folder=str(place))

    def add(self, piece: Piece, how: str, folder: str) -> int:
        """Record a failure; return the number of failed runs, this one included."""
        name, before = self._digest_piece(piece), self.recall(piece)
        runs = (before.runs if before else 0) + (name not in self.counted)
        self.counted.add(name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        document = {"how": how, "folder": folder, "runs": runs, "last": now}
        with suppress(OSError):  # not recorded then
            self.folder.mkdir(parents=True, exist_ok=True)
            files.replace(self.folder / name, json.dumps(document).encode(), self.folder)
        return runs

    def forget(self, piece: Piece) -> None:
        """Delete the record of a piece that succeeded."""
        if self:
            with suppress(OSError):
                (self.folder / self._digest_piece(piece)).unlink(missing_ok=True)

    def _digest_piece(self, piece: Piece) -> str:
        """Digest everything that determines how it ends: sha256, 64 hex digits."""
        loops = (piece.workload, piece.scheduled)
        request: Mapping[str, Any] = piece.problem or {}
        content = [
            piece.doing, piece.engine, piece.implementation, piece.schedule,
            [loop and tvm_ffi.structural_hash(loop["main"]) for loop in loops],
            [request.get(name) for name in ("batch", "seed", "tuner")],
            [self.facts.get(facet) for facet in _FACETS], self.fast_algorithms,
            version("autopipe"), contained.SECONDS, contained.MEMORY,
        ]  # fmt: skip
        text = json.dumps(content, sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()
