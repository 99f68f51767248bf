"""S1: what is not worth a search gets none."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tvm
from tvm import te, topi

from autopipe.compiler.tasks import task_of, workload
from autopipe.config.tasks import Judge
from autopipe.schedules.engines.ansor import Ansor, _schedules
from autopipe.schedules.engines.autotvm import AutoTVM
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.policy import Contender
from autopipe.tasks.op_info import OpInfo
from autopipe.tuning.search.searcher import Searcher, key
from autopipe.tuning.search.worth import NotWorth, demand, set_aside, size
from tests.schedules.tasks import CONDITIONS
from tests.tuning.states import state


def stopped(judge: Judge | None, *shares: float, best: float = 1.0) -> list[str | None]:
    found = [state(i) for i in range(len(shares))]
    for each, share in zip(found, shares, strict=True):
        each.best, each.share = best, share
    set_aside(found, judge)
    return [each.stopped for each in found]


def test_a_task_without_a_share_of_the_time_is_left_with_its_start():
    found = stopped(Judge(min_share=0.01), 0.985, 0.01, 0.005)
    assert found == [None, None, "0.500% of the measured time < 1.000%"]


def test_a_share_is_one_of_the_time_at_its_sizes():
    """A batch of 64 takes nearly all of the time of both; a batch of 1 is tuned all the same."""
    found = [state(i) for i in range(4)]
    for each, (name, share) in zip(
        found, [("a@64", 0.98), ("b@64", 0.001), ("a@1", 0.018), ("b@1", 0.001)], strict=True
    ):
        each.task = each.task.model_copy(update={"name": name})
        each.best, each.share = 1.0, share
    set_aside(found, Judge(min_share=0.01))
    said = "0.102% of the measured time at 64 < 1.000%"
    assert [each.stopped for each in found] == [None, said, None, None]
    found[0].task = found[0].task.model_copy(update={"name": "a"})  # sizes that a model computes
    set_aside(found, Judge(min_share=0.01))
    assert found[3].stopped == "0.100% of the measured time < 1.000%"


def test_what_could_not_be_measured_is_not_judged_by_it():
    assert stopped(Judge(min_share=0.01), 0.0, best=math.inf) == [None]


def test_without_a_judge_all_are_searched():
    assert stopped(None, 0.0, 0.0) == [None, None]


def problem(reduces: bool, shape: tuple[int | tvm.tirx.Var, ...] = (64, 128)) -> Problem:  # noqa: FBT001 - of the two kinds there are
    x = te.placeholder(shape, "float32")
    k = te.reduce_axis((0, shape[-1]))
    out = (
        te.compute(shape[:-1], lambda *i: te.sum(x[(*i, k)], axis=k))
        if reduces
        else te.compute(shape, lambda *i: x(*i) + 1.0)
    )
    found = workload(te.create_prim_func([x, out]))
    described = task_of(0, found, ["main"], OpInfo(kind="opaque"))
    return Problem(described, found.module, CONDITIONS, (), 8, 0)


def test_a_design_space_says_how_large_it_is():
    ansor, autotvm = Ansor(CONDITIONS), AutoTVM(CONDITIONS)
    sketches = ansor.search(problem(reduces=False))
    assert sketches is not None
    assert size(sketches) == 1 == len(sketches.propose(8))
    tiled = ansor.search(problem(reduces=True))
    assert tiled is not None
    assert size(tiled) == math.inf
    settings = autotvm.search(problem(reduces=False))
    assert settings is not None
    assert size(settings) == len(settings.propose(1000)) > 1
    assert size(cast("Any", object())) == math.inf


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (tvm.tirx.Var("n", "int64"), 8)])
def test_what_has_no_elements_or_no_known_number_has_no_sketch(shape):
    assert Ansor(CONDITIONS).search(problem(reduces=False, shape=shape)) is None


def test_an_engine_with_too_few_schedules_is_not_asked_for_them():
    class Few:
        name = "few"

        def search(self, _: Problem) -> Any:
            return SimpleNamespace(size=3, propose=lambda count: ["a", "b", "c"][:count])

    task, few = state(), Contender("few", "direct")
    asked = {key(task, few): problem(reduces=False)}
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
    demand(2, 2)
    with pytest.raises(NotWorth):
        demand(1, 2)


def test_choices_are_counted_and_tiles_are_not():
    sch = tvm.s_tir.Schedule(problem(reduces=False).module)
    assert _schedules(sch) == 1
    sch.sample_categorical([0, 16, 64], [0.4, 0.3, 0.3])
    sch.sample_categorical([0, 1], [0.5, 0.5])
    assert _schedules(sch) == 6
    loop = sch.get_loops(sch.get_child_blocks(sch.get_sblock("root"))[0])[-1]
    sch.sample_perfect_tile(loop, 2)
    assert _schedules(sch) == math.inf


def test_what_no_schedule_can_see_into_is_a_space_of_one():
    x = te.placeholder((8, 64), "float32")
    found = workload(te.create_prim_func([x, topi.cumsum(x, axis=1)]))
    described = task_of(0, found, ["main"], OpInfo(kind="opaque"))
    search = Ansor(CONDITIONS).search(Problem(described, found.module, CONDITIONS, (), 8, 0))
    assert search is not None
    assert size(search) == 1
