"""Which contender of a task is asked next."""

import math
from collections import Counter

import pytest

from autopipe.config.schedules import Rule
from autopipe.schedules.policy import Contender
from autopipe.tuning.bandit import Arm, Bandit

FAST, SLOW = Contender("autotvm", "direct"), Contender("ansor", "direct")
OTHER = Contender("autotvm", "winograd4")
LIBRARY = Contender("autotvm", "openblas")


def bandit(*contenders, **rule):
    engines = tuple(dict.fromkeys(by.engine for by in contenders))
    rule = {"engines": engines, **rule}
    return Bandit(Rule(**rule), 0, {by: Arm() for by in contenders})


def play(game, batches, time, seconds=lambda by: 1.0):
    """Ask for batches of two; return how often each contender was asked."""
    asked: Counter[Contender] = Counter()
    for _ in range(batches):
        by = game.select()
        if by is None:
            break
        before = min(game.reached.values(), default=math.inf)
        times = [time(by, asked[by])] * 2
        game.note_time(by.implementation, times[0])
        game.count_batch(by, times, before, seconds(by))
        asked[by] += 1
    return asked


def test_an_engine_that_nobody_knows_is_asked_the_fastest_implementation_first():
    game = bandit(FAST, SLOW, OTHER)
    game.note_time("direct", 1.2)
    game.note_time("winograd4", 1.0)
    order = []
    for _ in range(3):
        by = game.select()
        order.append(by)
        game.count_batch(by, [1.5, math.inf], 1.0, 1.0)
    assert order == [OTHER, SLOW, FAST]


def test_loops_are_searched_before_a_library_that_is_ahead():
    """A small budget went to a library with three ways to call it, and the template had none."""
    first, second = bandit(FAST, LIBRARY), bandit(FAST, LIBRARY)
    second.shared_stats = first.shared_stats
    for game in (first, second):
        game.note_time("direct", 1.2)
        game.note_time("openblas", 1.0)
    assert first.select() == FAST
    first.count_batch(FAST, [0.9], 1.0, 1.0)
    assert second.select() == LIBRARY  # nobody knows it yet
    second.count_batch(LIBRARY, [1.0], 1.0, 1.0)
    third = bandit(FAST, LIBRARY)
    third.shared_stats = first.shared_stats
    third.note_time("direct", 1.2)
    third.note_time("openblas", 1.0)
    assert third.select() == FAST


def test_who_brings_more_gets_more():
    asked = play(bandit(FAST, SLOW), 40, lambda by, n: 0.98**n if by == FAST else 1.0)
    assert asked[FAST] > 3 * asked[SLOW] > 0


def test_who_takes_longer_for_the_same_gets_less():
    asked = play(bandit(FAST, SLOW), 40, lambda by, n: 1.0, lambda by: 1.0 + 3.0 * (by == SLOW))
    assert asked[FAST] > 1.5 * asked[SLOW] > 0


def test_an_engine_that_brought_little_elsewhere_waits():
    first, second = bandit(FAST, SLOW), bandit(FAST, SLOW)
    second.shared_stats = first.shared_stats
    play(first, 4, lambda by, n: 1.0 - 0.2 * n * (by == FAST), lambda by: 1.0 + 5 * (by == SLOW))
    second.note_time("direct", 1.0)
    assert play(second, 3, lambda by, n: 0.9**n) == {FAST: 3}
    assert play(second, 40, lambda by, n: 1.0)[SLOW] > 0


def test_who_starts_late_is_not_forgotten():
    """A search that needs a few batches of learning overtakes in the end."""
    asked = play(bandit(FAST, SLOW), 60, lambda by, n: 1.0 if by == FAST or n < 5 else 0.95**n)
    assert asked[SLOW] > 40


def test_an_implementation_far_behind_is_not_asked():
    game = bandit(FAST, OTHER)
    game.note_time("direct", 1.0)
    game.note_time("winograd4", 1.6)
    assert play(game, 10, lambda by, n: 1.0) == {FAST: 10}


def test_an_implementation_that_nothing_is_known_of_is_tried_once():
    game = bandit(FAST, OTHER)
    game.note_time("direct", 1.0)
    assert play(game, 20, lambda by, n: 1.0 if by == FAST else math.inf) == {FAST: 19, OTHER: 1}


@pytest.mark.parametrize(("share", "batches"), [(0.5, 20), (0.25, 10), (0.8, 32), (1.0, 39)])
def test_a_share_is_what_an_engine_gets(share, batches):
    game = bandit(FAST, SLOW, shares={"ansor": share})
    asked = play(game, 40, lambda by, n: 0.9**n if by == FAST else 1.0)
    assert abs(asked[SLOW] - batches) <= 1


def test_shares_of_all_engines_divide_the_trials():
    game = bandit(FAST, SLOW, shares={"ansor": 0.2, "autotvm": 0.6})
    assert play(game, 40, lambda by, n: 1.0) == {FAST: 30, SLOW: 10}


def test_a_share_that_nobody_can_spend_goes_to_the_others():
    game = bandit(FAST, SLOW, shares={"autotvm": 0.9})
    game.arms[FAST].out = "all schedules are tried"
    assert play(game, 5, lambda by, n: 1.0) == {SLOW: 5}


def test_the_first_engine_with_schedules_is_the_only_one():
    game = bandit(FAST, OTHER, SLOW, select="first")
    assert play(game, 20, lambda by, n: 1.0)[SLOW] == 0
    for arm in list(game.arms.values())[:2]:
        arm.out = "all schedules are tried"
    assert game.select() is None
    assert game.explain_end() == "all schedules are tried"


def test_the_next_engine_is_asked_where_the_first_has_no_schedule():
    game = bandit(FAST, SLOW, select="first")
    game.arms[FAST].out = "no design space"
    assert play(game, 3, lambda by, n: 1.0) == {SLOW: 3}


def test_who_has_no_time_in_two_batches_is_left_out():
    game = bandit(FAST)
    assert play(game, 9, lambda by, n: math.inf) == {FAST: 2}
    assert game.explain_end() == "no candidate could be measured"


def test_nobody_is_asked_without_engines():
    game = bandit()
    assert game.select() is None
    assert game.explain_end() == "the policy gives it no engine"
