"""The engines that a policy may name: ours and those of other packages."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from autopipe import extensions
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Engine
from autopipe.schedules.engines.fallback import FALLBACKS, UNSCHEDULED

Maker = Callable[[Conditions], Engine]
"""Creates an engine."""


def _make_ansor(conditions: Conditions) -> Engine:
    from autopipe.schedules.engines.ansor import Ansor

    return Ansor(conditions)


def _make_autotvm(conditions: Conditions) -> Engine:
    from autopipe.schedules.engines.autotvm import AutoTVM

    return AutoTVM(conditions)


ENGINES: Final[Mapping[str, Maker]] = {
    "ansor": _make_ansor,
    "autotvm": _make_autotvm,
}
"""The makers of our engines, by name; each imports its engine, which takes up to a second."""


def load_engine_makers(
    names: Iterable[str], conditions: Conditions
) -> dict[str, Callable[[], Engine]]:
    """Load the maker of each named engine, and the packages that register them.

    Raises SetupError if an extension is broken.
    """
    registered = extensions.list_registered(extensions.ENGINES, {*ENGINES, *FALLBACKS, UNSCHEDULED})
    wanted_names = set(names)
    makers = {name: found.load() for name, found in registered.items() if name in wanted_names}
    return {name: partial({**ENGINES, **makers}[name], conditions) for name in wanted_names}
