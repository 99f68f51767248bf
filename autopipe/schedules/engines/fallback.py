"""The fallback engines: they schedule without a record, one after the other until one can."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default, loops, serial, static
from autopipe.schedules.planned import Planned

Plan = Callable[[tvm.IRModule, Conditions], Planned | None]
"""Returns a schedule of a function, or None if it has none."""

Plans = Callable[[str], Iterable[Planned]]
"""Returns the schedules of the fallback of that name, the most promising first."""

Allowed = Callable[[str, str], bool]
"""Tells whether an engine may schedule an implementation."""

FALLBACKS: Final[Mapping[str, Plan]] = {
    "static": static.plan,
    "default": default.plan,
    "serial": serial.plan,
    "loops": loops.plan,
    "parallel_loops": loops.plan_parallel,
}
"""The fallbacks, by their names; winners are compared with the last three."""

UNSCHEDULED: Final = "none"
"""The engine of a function that no engine can schedule: it is compiled as it is."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a task is built with if nothing better is known."""

    engine: str
    """Name of the engine: a key of `FALLBACKS`, or `UNSCHEDULED`."""
    planned: Planned | None
    """The schedule, or None to compile the function as it is."""


def iterate_fallbacks(
    chain: Sequence[str], plans: Plans, allowed: Allowed = lambda *_: True
) -> Iterator[Fallback]:
    """Yield the schedules that the engines of `chain` have for a function, in order.

    The last item has no schedule. `plans` returns the schedules of a fallback. `allowed` tells
    whether an engine may schedule an implementation; if it allows no schedule, all are yielded.
    """
    later_fallbacks: list[Fallback] = []
    fit = False
    for name in chain:
        for planned in plans(name):
            if allowed(name, planned.implementation):
                fit = True
                yield Fallback(name, planned)
            else:
                later_fallbacks.append(Fallback(name, planned))
    yield from () if fit else later_fallbacks
    yield Fallback(UNSCHEDULED, None)


def choose_fallback(chain: Sequence[str], module: tvm.IRModule, conditions: Conditions) -> Fallback:
    """Return the first schedule of `chain` for the `main` of a module, made in this process."""
    return next(iterate_fallbacks(chain, partial(_list_plans, module, conditions)))


def _list_plans(module: tvm.IRModule, conditions: Conditions, name: str) -> Iterator[Planned]:
    if name == "static":
        yield from static.list_plans(module, conditions)
    elif (planned := FALLBACKS[name](module, conditions)) is not None:
        yield planned
