"""Schedules that need no record, and the chain of them that a task falls down."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default, serial, static
from autopipe.schedules.planned import Planned

Plan = Callable[[tvm.IRModule, Conditions], Planned | None]
"""Returns a schedule, or None if it has none for this function."""

Plans = Callable[[str], Iterable[Planned]]
"""Returns the schedules of the fallback of that name, the most promising first."""

Allowed = Callable[[str, str], bool]
"""Tells whether an engine may schedule an implementation."""

FALLBACKS: Final[Mapping[str, Plan]] = {
    "static": static.plan, "default": default.plan, "serial": serial.plan,
}  # fmt: skip
"""The fallbacks, by the name that YAML gives them; `serial` is only what winners are held to."""

UNSCHEDULED: Final = "none"
"""The engine of a function that none can act on: it is compiled as it is."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a task is built with where nothing better is known."""

    engine: str
    """Its name in `FALLBACKS`, or `UNSCHEDULED`."""
    planned: Planned | None
    """The schedule, or None to compile the function as it is."""


def falls(
    chain: Sequence[str], plans: Plans, allowed: Allowed = lambda *_: True
) -> Iterator[Fallback]:
    """Yield the schedules that the chain has for a function, in order, then none at all.

    `plans` makes those of a fallback. `allowed` tells whether an engine may schedule an
    implementation; if that leaves nothing, all are allowed.
    """
    others: list[Fallback] = []
    fit = False
    for name in chain:
        for planned in plans(name):
            if allowed(name, planned.implementation):
                fit = True
                yield Fallback(name, planned)
            else:
                others.append(Fallback(name, planned))
    yield from () if fit else others
    yield Fallback(UNSCHEDULED, None)


def fall(chain: Sequence[str], module: tvm.IRModule, conditions: Conditions) -> Fallback:
    """Return the first schedule that the chain has for the `main` of a module, made right here."""
    return next(falls(chain, partial(_plans, module, conditions)))


def _plans(module: tvm.IRModule, conditions: Conditions, name: str) -> Iterator[Planned]:
    if name == "static":
        yield from static.plans(module, conditions)
    elif (planned := FALLBACKS[name](module, conditions)) is not None:
        yield planned
