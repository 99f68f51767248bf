import math

import pytest

from autopipe.tuning.scheduler import SCHEDULERS, Standing, gradient, round_robin
from tests.schedules.tasks import task


def standing(index, history, *, share=0.0, flops=1e9, calls=1, ops=("nn.conv2d",), stopped=None):
    best = history[-1] if history else math.inf
    return Standing(
        task(index, flops=flops, calls=calls, ops=ops, share=share), best=best,
        history=list(history), stopped=stopped,
    )  # fmt: skip


def test_what_has_no_schedule_comes_first_the_heaviest_before_the_others():
    standings = [standing(0, [], share=0.1), standing(1, [], share=0.3), standing(2, [1.0])]
    assert gradient(standings).task.index == 1
    standings[1].history.append(1.0)
    standings[1].best = 1.0
    assert gradient(standings).task.index == 0


def test_the_gradient_follows_what_shortens_the_model_most():
    often = standing(0, [1.0, 0.9], calls=10)
    once = standing(1, [1.0, 0.9])
    assert gradient([once, often]) is often


def test_the_gradient_leaves_a_task_that_no_longer_improves():
    flat = standing(0, [1.0] * 20, ops=("a",))
    falling = standing(1, [1.9, 1.6, 1.3, 1.0], ops=("b",))
    assert gradient([flat, falling]) is falling


def test_the_gradient_expects_similar_tasks_to_reach_similar_speed():
    slow = standing(0, [1.0] * 9, flops=1e9)
    fast = standing(1, [0.01] * 9, flops=1e9)
    alone = standing(2, [1.0] * 9, flops=1e9, ops=("other",))
    assert gradient([fast, alone, slow]) is slow


def test_a_task_without_work_to_count_does_not_confuse_the_gradient():
    uncounted = standing(0, [1.0, 1.0], flops=0.0)
    assert gradient([uncounted, standing(1, [1.0], stopped="done")]) is uncounted


def test_round_robin_takes_turns():
    standings = [standing(0, [1.0]), standing(1, []), standing(2, [])]
    assert round_robin(standings).task.index == 1
    standings[1].history.append(1.0)
    standings[1].best = 1.0
    assert round_robin(standings).task.index == 2


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_stopped_task_gets_nothing(name):
    standings = [standing(0, [], stopped="done"), standing(1, [1.0])]
    assert SCHEDULERS[name](standings).task.index == 1


def test_a_standing_counts_trials_failures_and_how_long_nothing_got_better():
    found = Standing(task())
    for seconds in (math.inf, 2.0, 3.0, 1.0, 1.0, math.inf):
        found.count(seconds)
    assert (found.trials, found.failed, found.best, found.stale) == (6, 2, 1.0, 2)


@pytest.mark.fault("D1")
@pytest.mark.parametrize("cut", range(9))
@pytest.mark.parametrize("before", [(), (4.0,), (0.5, 9.0)])
def test_an_interruption_changes_nothing_in_when_a_task_is_left(before, cut):
    times = (3.0, math.inf, 2.0, 5.0, 5.0, 1.0, 1.0, 4.0)
    straight = Standing(task(), best=min(before, default=math.inf))
    for seconds in times:
        straight.count(seconds)
    resumed = Standing(task(), best=min((*before, *times[:cut]), default=math.inf))
    resumed.recall([(each, False) for each in before] + [(each, True) for each in times[:cut]])
    for seconds in times[cut:]:
        resumed.count(seconds)
    assert resumed.stale == straight.stale


def test_trials_of_others_are_not_counted_but_have_to_be_beaten():
    found = Standing(task())
    found.recall([(2.0, True), (1.0, False), (1.5, True), (9.0, False)])
    assert found.stale == 1
