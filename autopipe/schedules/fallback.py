"""Schedules that need no record, and the chain of them that a task falls down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import tvm

from autopipe.schedules import default, static
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.planned import Planned

Plan = Callable[[tvm.IRModule, Conditions], Planned | None]
"""Returns a schedule, or None if it has none for this function."""

FALLBACKS: Final[Mapping[str, Plan]] = {"static": static.plan, "default": default.plan}
"""The fallbacks, by the name that YAML gives them."""

UNSCHEDULED: Final = "none"
"""The engine of a function that none can act on: it is compiled as it is."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a task is built with where nothing better is known."""

    engine: str
    """Its name in `FALLBACKS`, or `UNSCHEDULED`."""
    planned: Planned | None
    """The schedule, or None to compile the function as it is."""


def fall(chain: Sequence[str], module: tvm.IRModule, conditions: Conditions) -> Fallback:
    """Return the first schedule that the chain has for the `main` of a module."""
    for name in chain:
        planned = FALLBACKS[name](module, conditions)
        if planned is not None:
            return Fallback(name, planned)
    return Fallback(UNSCHEDULED, None)
