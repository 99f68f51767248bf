"""An environment with the target of a lock, and all other facts of this machine."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from autopipe.config.target import Target
from autopipe.environment.environment import Environment
from autopipe.environment.facet import Facet, Facts


def list_contradictions(asked: Target, locked: Mapping[str, Any]) -> list[str]:
    """List the fields in which a lock's target contradicts the target of the pipeline file."""
    fields = asked.model_dump(
        mode="json", exclude_none=True, exclude={"linker", "sysroot", "mattr"}
    )
    flat = {**fields, **{f"hardware.{name}": size for name, size in fields["hardware"].items()}}
    del flat["hardware"]
    pairs = {
        name: (value, _read_target_field(locked, name))
        for name, value in flat.items()
        if value != "native"
    }
    added = list(asked.mattr)
    if added != locked["mattr"][len(locked["mattr"]) - len(added) :]:
        pairs["mattr"] = added, locked["mattr"]
    return [
        f"target.{name}: the lock has {found}, the pipeline file {value}"
        for name, (value, found) in pairs.items()
        if value != found
    ]


def _read_target_field(target: Mapping[str, Any], name: str) -> object:
    section, _, field = name.rpartition(".")
    return (target[section] if section else target).get(field)


class Pinned(NamedTuple):
    """An environment whose target is the one a lock names."""

    environment: Environment
    target: Mapping[str, object]

    def facts(self, facets: Iterable[Facet]) -> Facts:
        """Return the facts of the facets. Raises SetupError."""
        facets = frozenset(facets)
        return {
            **self.environment.facts(facets - {Facet.TARGET}),
            **self._select_target_facts(facets),
        }

    def known(self, facets: Iterable[Facet]) -> Facts | None:
        """Return the same, or None if that needs facts from TVM."""
        facets = frozenset(facets)
        facts = self.environment.known(facets - {Facet.TARGET})
        return None if facts is None else {**facts, **self._select_target_facts(facets)}

    def _select_target_facts(self, facets: frozenset[Facet]) -> Facts:
        return {Facet.TARGET: self.target} if Facet.TARGET in facets else {}
