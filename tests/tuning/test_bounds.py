"""Lower bounds of tasks: the roofline of the machine, never above what was measured."""

import math

import pytest

from autopipe.schedules import roofline
from autopipe.schedules.policy import Contender
from autopipe.tuning.search.bounds import estimate_bounds
from autopipe.tuning.task_state import TaskState
from tests.schedules.tasks import CONDITIONS
from tests.tuning.states import state


def states_with(*times: float) -> list[TaskState]:
    states = [state(place) for place in range(len(times))]
    for one, seconds in zip(states, times, strict=True):
        one.best = seconds
        one.task = one.task.model_copy(update={"flops": 1e9, "bytes": 1000})
    return states


def roofline_seconds(one: TaskState) -> float:
    return roofline.lower_bound_ns(one.task, CONDITIONS.hardware) * 1e-9


def test_a_bound_is_the_roofline_where_no_time_is_below_it():
    slow, unknown = states_with(10.0, math.inf)
    assert estimate_bounds([slow, unknown], CONDITIONS) == [roofline_seconds(slow)] * 2


def test_times_below_their_bounds_lower_all_bounds():
    fast, slow = states_with(0.0, 10.0)
    fast.best = roofline_seconds(fast) / 2
    assert estimate_bounds([fast, slow], CONDITIONS) == pytest.approx([fast.best] * 2)


def test_a_task_that_winograd_may_compute_has_a_lower_bound():
    (one,) = states_with(10.0)
    direct = estimate_bounds([one], CONDITIONS)[0]
    arm = next(iter(one.bandit.arms.values()))
    one.bandit.arms[Contender("static", "winograd4")] = arm
    assert estimate_bounds([one], CONDITIONS)[0] == pytest.approx(direct * 64 / 324)


def test_dynamic_shapes_have_no_bound():
    (one,) = states_with(10.0)
    one.task = one.task.model_copy(update={"sizes": 1})
    assert estimate_bounds([one], CONDITIONS) == [0.0]
