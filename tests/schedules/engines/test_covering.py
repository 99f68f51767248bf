import pytest
from tvm import te, topi

from autopipe.schedules.engines.ansor import Ansor, has_all_instances
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.primitives import make_schedule
from tests.schedules.tasks import CONDITIONS, task
from tests.schedules.templates.test_sequence import SERVED, convolutions
from tests.schedules.tensors import module_of


def test_a_border_that_is_lost_is_seen():
    x, w = te.placeholder((1, 3, 8, 8), name="x"), te.placeholder((4, 3, 1, 1), name="w")
    y = topi.nn.conv2d_nchw(x, w, 1, 0, 1)
    sch = make_schedule(module_of([x, w, topi.nn.pad(y, (0, 0, 1, 1), name="border")]))
    assert has_all_instances(sch)
    moved = sch.copy()
    loops = moved.get_loops(moved.get_sblock("conv2d_nchw"))
    moved.reverse_compute_at(moved.get_sblock("border"), loops[2])
    assert not has_all_instances(moved)  # no row above the first
    sch.parallel(sch.get_loops(sch.get_sblock("border"))[2])
    assert has_all_instances(sch)


@pytest.mark.parametrize("case", SERVED)
def test_sketches_of_several_reductions_keep_every_element(case):
    module = module_of(*SERVED[case][0]())
    found = Ansor(CONDITIONS).search(Problem(task(), module, CONDITIONS, (), 8, 0))
    assert found is not None
    assert found.propose(8)


def test_two_convolutions_are_searched_without_the_sketches_that_lose_a_border():
    from autopipe.measure.check import checked
    from autopipe.schedules.replay import replay_schedule

    module = module_of(*convolutions())
    found = Ansor(CONDITIONS).search(Problem(task(), module, CONDITIONS, (), 8, 0))
    assert found is not None
    for trace in found.propose(8):
        checked(module, replay_schedule(module, "direct", trace, CONDITIONS), CONDITIONS.target)
