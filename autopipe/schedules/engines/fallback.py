"""The fallback engines: they schedule tasks without a record, tried in the order of a chain."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default, loops, static
from autopipe.schedules.engines.engine import Planned

Plan = Callable[[tvm.IRModule, Conditions], Planned | None]
"""Schedules a function, or returns None if the engine does not serve it."""

Plans = Callable[[str], Iterable[Planned]]
"""Lists the schedules of the named fallback, the best estimated first."""

Allowed = Callable[[str, str], bool]
"""Tells whether an engine may schedule an implementation."""

FALLBACKS: Final[Mapping[str, Plan]] = {
    "static": static.plan,
    "default": default.plan,
    "serial": loops.plan_serial,
    "loops": loops.plan,
    "parallel_loops": loops.plan_parallel,
}
"""The fallbacks, by their names; winners are compared with the last three."""

UNSCHEDULED: Final = "none"
"""The engine of a function that no engine can schedule: it is compiled as it is."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A schedule without measurement, for a task without a record."""

    engine: str
    """Name of the engine: a key of `FALLBACKS`, or `UNSCHEDULED`."""
    planned: Planned | None
    """The schedule, or None to compile the function as it is."""


def iterate_fallbacks(
    chain: Sequence[str], plans: Plans, allowed: Allowed = lambda *_: True
) -> Iterator[Fallback]:
    """Yield the schedules of a function by the engines of `chain`, in order, unscheduled last.

    `plans` returns the schedules of a fallback. `allowed` tells whether an engine may schedule an
    implementation; if it allows no schedule, all are yielded.
    """
    later_fallbacks: list[Fallback] = []
    has_allowed = False
    for name in chain:
        for plan in plans(name):
            if allowed(name, plan.implementation):
                has_allowed = True
                yield Fallback(name, plan)
            else:
                later_fallbacks.append(Fallback(name, plan))
    yield from () if has_allowed else later_fallbacks
    yield Fallback(UNSCHEDULED, None)


def choose_fallback(chain: Sequence[str], module: tvm.IRModule, conditions: Conditions) -> Fallback:
    """Return the first schedule of `chain` for the `main` of a module, created in this process."""
    return next(iterate_fallbacks(chain, partial(_list_plans, module, conditions)))


def _list_plans(module: tvm.IRModule, conditions: Conditions, name: str) -> Iterator[Planned]:
    if name == "static":
        yield from static.list_plans(module, conditions)
    elif (plan := FALLBACKS[name](module, conditions)) is not None:
        yield plan
