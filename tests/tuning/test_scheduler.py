import math

import pytest

from autopipe.tuning.search.scheduler import SCHEDULERS, choose_by_gradient, choose_round_robin
from tests.schedules.tasks import task
from tests.tuning.states import ANSOR, state_of


def state(index, history, *, share=0.0, flops=1e9, calls=1, ops=("nn.conv2d",), stopped=None):
    best = history[-1] if history else math.inf
    return state_of(
        task(index, flops=flops, calls=calls, ops=ops, share=share), best=best,
        history=list(history), stopped=stopped,
    )  # fmt: skip


def test_what_has_no_schedule_comes_first_the_heaviest_before_the_others():
    states = [state(0, [], share=0.1), state(1, [], share=0.3), state(2, [1.0])]
    assert choose_by_gradient(states).task.index == 1
    states[1].history.append(1.0)
    states[1].best = 1.0
    assert choose_by_gradient(states).task.index == 0


def test_the_gradient_follows_what_shortens_the_model_most():
    often = state(0, [1.0, 0.9], calls=10)
    once = state(1, [1.0, 0.9])
    assert choose_by_gradient([once, often]) is often


def test_the_gradient_leaves_a_task_that_no_longer_improves():
    flat = state(0, [1.0] * 20, ops=("a",))
    falling = state(1, [1.9, 1.6, 1.3, 1.0], ops=("b",))
    assert choose_by_gradient([flat, falling]) is falling


def test_the_gradient_expects_similar_tasks_to_reach_similar_speed():
    slow = state(0, [1.0] * 9, flops=1e9)
    fast = state(1, [0.01] * 9, flops=1e9)
    alone = state(2, [1.0] * 9, flops=1e9, ops=("other",))
    assert choose_by_gradient([fast, alone, slow]) is slow


def test_a_task_without_work_to_count_does_not_confuse_the_gradient():
    uncounted = state(0, [1.0, 1.0], flops=0.0)
    assert choose_by_gradient([uncounted, state(1, [1.0], stopped="done")]) is uncounted


def test_nothing_gets_far_ahead_while_a_task_was_never_searched():
    heavy, light, lighter = (
        state(index, [seconds], share=seconds / 100)
        for index, seconds in enumerate((60.0, 2.0, 1.0))
    )
    states, order = [lighter, heavy, light], []
    for _ in range(6):
        chosen = choose_by_gradient(states)
        chosen.bandit.arms[ANSOR].stats.count(0.0, 1.0)
        chosen.history.append(chosen.best)
        order.append(chosen.task.index)
    assert order == [0, 0, 1, 2, 0, 0]


def test_round_robin_takes_turns():
    states = [state(0, [1.0]), state(1, []), state(2, [])]
    assert choose_round_robin(states).task.index == 1
    states[1].history.append(1.0)
    states[1].best = 1.0
    assert choose_round_robin(states).task.index == 2


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_stopped_task_gets_nothing(name):
    states = [state(0, [], stopped="done"), state(1, [1.0])]
    assert SCHEDULERS[name](states).task.index == 1


def test_a_state_counts_trials_failures_and_how_long_nothing_got_better():
    found = state_of(task())
    for seconds in (math.inf, 2.0, 3.0, 1.0, 1.0, math.inf):
        found.count(seconds)
    assert (found.trials, found.failed, found.best, found.stale) == (6, 2, 1.0, 2)


@pytest.mark.fault("D1")
@pytest.mark.parametrize("cut", range(9))
@pytest.mark.parametrize("before", [(), (4.0,), (0.5, 9.0)])
def test_an_interruption_changes_nothing_in_when_a_task_is_left(before, cut):
    times = (3.0, math.inf, 2.0, 5.0, 5.0, 1.0, 1.0, 4.0)
    straight = state_of(task(), best=min(before, default=math.inf))
    for seconds in times:
        straight.count(seconds)
    resumed = state_of(task(), best=min((*before, *times[:cut]), default=math.inf))
    resumed.recall([(each, False) for each in before] + [(each, True) for each in times[:cut]])
    for seconds in times[cut:]:
        resumed.count(seconds)
    assert resumed.stale == straight.stale


def test_trials_of_others_are_not_counted_but_have_to_be_beaten():
    found = state_of(task())
    found.recall([(2.0, True), (1.0, False), (1.5, True), (9.0, False)])
    assert found.stale == 1
