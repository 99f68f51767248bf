"""The engines that the policy may name: ours and those of other packages."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pkgutil import resolve_name
from typing import Final

from autopipe import extensions
from autopipe.config.engine_name import OURS
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Engine
from autopipe.schedules.engines.fallback import FALLBACKS, UNSCHEDULED

Maker = Callable[[Conditions], Engine]
"""Makes an engine."""


def _ours(where: str, conditions: Conditions) -> Engine:
    engine: Engine = resolve_name(where)(conditions)
    return engine


ENGINES: Final[Mapping[str, Maker]] = {name: partial(_ours, at) for name, at in OURS.items()}
"""What makes our engines, by the name that YAML gives them; only what is used is imported."""


def engines(names: Iterable[str], conditions: Conditions) -> dict[str, Callable[[], Engine]]:
    """Return a maker of each named engine. Packages that register a named engine are imported.

    Raises SetupError if an extension is broken.
    """
    registered = extensions.registered(extensions.ENGINES, {*ENGINES, *FALLBACKS, UNSCHEDULED})
    wanted = set(names)
    makers = {name: found.load() for name, found in registered.items() if name in wanted}
    return {name: partial({**ENGINES, **makers}[name], conditions) for name in wanted}
