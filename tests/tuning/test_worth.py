"""S1: what is not worth a search gets none."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, topi

from autopipe.compiler.tasks import make_task, make_workload
from autopipe.config.tasks import Judge
from autopipe.schedules.engines.ansor import Ansor, _count_schedules
from autopipe.schedules.engines.autotvm import AutoTVM
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.policy import Contender
from autopipe.tasks.op_info import OpInfo
from autopipe.tasks.shares import TOO_LITTLE
from autopipe.tuning.search.searcher import Searcher, make_search_key
from autopipe.tuning.search.worth import (
    NEAR,
    NotWorth,
    SearchWorth,
    check_space_size,
    count_schedules,
)
from autopipe.tuning.task_state import TaskState
from tests.schedules.tasks import CONDITIONS
from tests.tuning.states import ANSOR, state


def states_of(*shares: float, best: float = 1.0) -> list[TaskState]:
    found = [state(i) for i in range(len(shares))]
    for each, share in zip(found, shares, strict=True):
        each.best, each.share = best * share, share
        each.task = each.task.model_copy(update={"calls": 1})
    return found


def stopped(found: Sequence[TaskState], min_gain: float, *bounds: float) -> list[str | None]:
    worth = SearchWorth.of(found, Judge(min_gain=min_gain), bounds or [0.0] * len(found))
    worth.set_aside()
    return [each.stopped for each in found]


def test_tasks_with_too_little_to_gain_are_left_with_their_starts():
    found = stopped(states_of(0.985, 0.01, 0.005), 0.012)
    assert found == [None, None, TOO_LITTLE]


def test_a_heavy_task_at_its_bound_is_not_searched():
    assert stopped(states_of(0.7, 0.3), 0.02, 0.69, 0.0) == [TOO_LITTLE, None]
    assert stopped(states_of(0.7, 0.3), 0.02, 0.67, 0.0) == [None, None]


def test_a_bound_above_the_time_leaves_nothing():
    assert stopped(states_of(0.7, 0.3), 0.02, 0.8, 0.0) == [TOO_LITTLE, None]


def test_a_task_is_stopped_once_its_best_comes_near_its_bound():
    found = states_of(0.5, 0.5)
    worth = SearchWorth.of(found, Judge(min_gain=0.02), [0.4, 0.0])
    worth.set_aside()
    assert [each.stopped for each in found] == [None, None]
    found[0].best = 0.41
    found[0].bandit.arms[ANSOR].stats.batches = 1
    worth.set_aside()
    assert [each.stopped for each in found] == [NEAR, None]


PARTS = st.lists(
    st.tuples(st.floats(0.001, 1.0), st.floats(0.0, 1.2)), min_size=1, max_size=12
)  # fmt: skip


@given(PARTS, st.floats(0.0, 0.5), st.lists(st.floats(0.5, 1.0), max_size=12))
def test_all_that_is_set_aside_has_less_to_gain_than_the_limit(parts, least, later):
    """Whatever the tasks, their bounds, and what later batches find."""
    total = sum(share for share, _ in parts)
    found = states_of(*(share / total for share, _ in parts))
    bounds = [each.best * bound for each, (_, bound) in zip(found, parts, strict=True)]
    worth = SearchWorth.of(found, Judge(min_gain=least), bounds)
    worth.set_aside()
    before = {at for at, each in enumerate(found) if each.stopped}
    assert before == worth.aside
    for each, factor in zip(found, later, strict=False):
        each.best *= factor
    worth.set_aside()
    gains = worth.gains()
    aside = sum(gains[at] for at in worth.aside)
    going = [gains[at] for at, each in enumerate(found) if not each.stopped]
    assert before <= worth.aside
    assert not worth.aside or aside < least + 1e-9
    assert all(aside + gain >= least - 1e-9 for gain in going), "one more could be set aside"


@given(PARTS, st.floats(0.0, 0.5), st.randoms())
def test_the_order_of_tasks_does_not_matter(parts, least, random):
    def gains_aside(order):
        total = sum(share for share, _ in parts)
        found = states_of(*(share / total for share, _ in order))
        worth = SearchWorth.of(
            found,
            Judge(min_gain=least),
            [e.best * b for e, (_, b) in zip(found, order, strict=True)],
        )
        worth.set_aside()
        return sorted(round(worth.gains()[at], 9) for at in worth.aside)

    assert gains_aside(parts) == gains_aside(random.sample(parts, len(parts)))


def test_a_gain_is_one_of_the_time_at_its_sizes():
    """A batch of 64 takes nearly all of the time of both; a batch of 1 is tuned all the same."""
    found = states_of(0.98, 0.001, 0.018, 0.001)
    for each, name in zip(found, ["a@64", "b@64", "a@1", "b@1"], strict=True):
        each.task = each.task.model_copy(update={"name": name})
    assert stopped(found, 0.01) == [None, TOO_LITTLE, None, None]
    again = states_of(0.98, 0.001, 0.018, 0.001)
    for each, name in zip(again, ["a", "b@64", "a@1", "b@1"], strict=True):  # computed sizes
        each.task = each.task.model_copy(update={"name": name})
    assert stopped(again, 0.01) == [None, TOO_LITTLE, None, TOO_LITTLE]


def test_what_could_not_be_measured_is_not_judged_by_it():
    assert stopped(states_of(0.0, best=math.inf), 0.01) == [None]


def test_without_a_judge_all_are_searched():
    found = states_of(0.5, 0.5)
    SearchWorth.of(found, None, [0.5, 0.5]).set_aside()
    assert [each.stopped for each in found] == [None, None]


def problem(reduces: bool, shape: tuple[int | tvm.tirx.Var, ...] = (64, 128)) -> Problem:  # noqa: FBT001 - of the two kinds there are
    x = te.placeholder(shape, "float32")
    k = te.reduce_axis((0, shape[-1]))
    out = (
        te.compute(shape[:-1], lambda *i: te.sum(x[(*i, k)], axis=k))
        if reduces
        else te.compute(shape, lambda *i: x(*i) + 1.0)
    )
    found = make_workload(te.create_prim_func([x, out]))
    described = make_task(0, found, ["main"], OpInfo(kind="opaque"))
    return Problem(described, found.module, CONDITIONS, (), 8, 0)


def test_a_design_space_says_how_large_it_is():
    ansor, autotvm = Ansor(CONDITIONS), AutoTVM(CONDITIONS)
    sketches = ansor.search(problem(reduces=False))
    assert sketches is not None
    assert count_schedules(sketches) == 1 == len(sketches.propose(8))
    tiled = ansor.search(problem(reduces=True))
    assert tiled is not None
    assert count_schedules(tiled) == math.inf
    settings = autotvm.search(problem(reduces=False))
    assert settings is not None
    assert count_schedules(settings) == len(settings.propose(1000)) > 1
    assert count_schedules(cast("Any", object())) == math.inf


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (tvm.tirx.Var("n", "int64"), 8)])
def test_what_has_no_elements_or_no_known_number_has_no_sketch(shape):
    assert Ansor(CONDITIONS).search(problem(reduces=False, shape=shape)) is None


def test_an_engine_with_too_few_schedules_is_not_asked_for_them():
    class Few:
        name = "few"

        def search(self, _: Problem) -> Any:
            return SimpleNamespace(size=3, propose=lambda count: ["a", "b", "c"][:count])

    task, few = state(), Contender("few", "direct")
    asked = {make_search_key(task, few): problem(reduces=False)}
    for least, enough in ((3, True), (4, False)):
        searcher = Searcher({"few": Few}, asked, lambda *_: (), least)
        try:
            if enough:
                assert searcher.propose(task, few, 2) == ["a", "b"]
            else:
                with pytest.raises(NotWorth, match="a design space of 3 < 4 schedules"):
                    searcher.propose(task, few, 2)
        finally:
            searcher.close()


def test_a_space_at_the_limit_is_searched():
    check_space_size(2, 2)
    with pytest.raises(NotWorth):
        check_space_size(1, 2)


def test_choices_are_counted_and_tiles_are_not():
    sch = tvm.s_tir.Schedule(problem(reduces=False).module)
    assert _count_schedules(sch) == 1
    sch.sample_categorical([0, 16, 64], [0.4, 0.3, 0.3])
    sch.sample_categorical([0, 1], [0.5, 0.5])
    assert _count_schedules(sch) == 6
    loop = sch.get_loops(sch.get_child_blocks(sch.get_sblock("root"))[0])[-1]
    sch.sample_perfect_tile(loop, 2)
    assert _count_schedules(sch) == math.inf


def test_what_no_schedule_can_see_into_is_a_space_of_one():
    x = te.placeholder((8, 64), "float32")
    found = make_workload(te.create_prim_func([x, topi.cumsum(x, axis=1)]))
    described = make_task(0, found, ["main"], OpInfo(kind="opaque"))
    search = Ansor(CONDITIONS).search(Problem(described, found.module, CONDITIONS, (), 8, 0))
    assert search is not None
    assert count_schedules(search) == 1
