"""The world outside as a lock has it: another target than this machine, all else as it is here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autopipe.environment.environment import Environment
from autopipe.environment.facet import Facet, Facts


@dataclass(frozen=True, slots=True)
class Pinned:
    """An environment whose target is the one a lock names."""

    environment: Environment
    target: Mapping[str, object]

    def facts(self, facets: Iterable[Facet]) -> Facts:
        """Return what the facets say. Raises SetupError."""
        facets = frozenset(facets)
        return {**self.environment.facts(facets - {Facet.TARGET}), **self._own(facets)}

    def known(self, facets: Iterable[Facet]) -> Facts | None:
        """Return the same, or None where TVM would have to be asked first."""
        facets = frozenset(facets)
        facts = self.environment.known(facets - {Facet.TARGET})
        return None if facts is None else {**facts, **self._own(facets)}

    def _own(self, facets: frozenset[Facet]) -> Facts:
        return {Facet.TARGET: self.target} if Facet.TARGET in facets else {}
