"""Lower bounds of the times of tasks: what the machine needs for their arithmetic and traffic.

A search can gain what a schedule takes above its bound, and no more.
"""

import math
from collections.abc import Sequence
from typing import Final

from autopipe.backends.cpu import CPU
from autopipe.schedules import roofline
from autopipe.schedules.conditions import Conditions
from autopipe.tuning.task_state import TaskState

_FEWEST_PRODUCTS: Final = 64 / 324
"""Part of a 3x3 convolution's products that Winograd's algorithm takes on tiles of 6 x 6."""

_NANO: Final = 1e-9


def estimate_bounds(states: Sequence[TaskState], conditions: Conditions) -> list[float]:
    """Return seconds that no schedule of one call of each task can beat; 0 where that is unknown.

    A clock above the one in the table of machines shows in times below the bounds. All of them are
    lowered then, until none is above a measured time.
    """
    bounds = [_bound_seconds(state, conditions) for state in states]
    ratios = [state.best / bound for state, bound in zip(states, bounds, strict=True) if bound]
    scale = min(1.0, *ratios, math.inf)
    return [bound * scale for bound in bounds]


def _bound_seconds(state: TaskState, conditions: Conditions) -> float:
    """Return the bound of the roofline: 0 for dynamic shapes, and on other hardware than CPUs."""
    task, hardware = state.task, conditions.hardware
    if task.likely is not None or task.sizes or hardware.backend is not CPU:
        return 0.0
    if any("winograd" in arm.implementation for arm in state.bandit.arms):
        task = task.model_copy(update={"flops": task.flops * _FEWEST_PRODUCTS})
    return roofline.lower_bound_ns(task, hardware) * _NANO
