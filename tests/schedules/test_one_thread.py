"""The setting of a template on one thread computes the same, and nothing else passes for one."""

import json

import pytest
import tvm_ffi

from autopipe.errors import StageError
from autopipe.schedules import one_thread
from autopipe.schedules.engines import static
from autopipe.schedules.replay import replay_schedule
from autopipe.traces.reading import check_schedule
from tests.schedules.computed import assert_same
from tests.schedules.engines.test_static import dense, module_of
from tests.schedules.tasks import CONDITIONS

BIG = (256, 160)
"""Rows and columns of a product of 33 steps that has threads."""


def planned(sizes):
    tensors, free = dense(*sizes)
    module = module_of(tensors, free)
    found = static.plan(module, CONDITIONS)
    assert found is not None
    return module, found


def test_all_loops_run_on_one_thread_and_compute_the_same():
    module, found = planned(BIG)
    setting = one_thread.make_setting(found.schedule)
    assert setting is not None
    check_schedule(setting)
    made = replay_schedule(module, found.implementation, setting, CONDITIONS)
    assert "T.parallel" in found.module.script()
    assert "T.parallel" not in made.script()
    assert_same(module, found.module, made)
    assert one_thread.make_setting(setting) is None
    assert one_thread.remove_threads(made) is None


@pytest.mark.parametrize("threads", [0, 2, True, "1", None, [1]])
def test_another_number_of_threads_is_refused(threads):
    module, found = planned(BIG)
    setting = json.dumps({**json.loads(found.schedule), "threads": threads})
    with pytest.raises(StageError, match="all threads or 1"):
        replay_schedule(module, found.implementation, setting, CONDITIONS)


@pytest.mark.parametrize("schedule", ["[[], []]", "no JSON"])
def test_what_is_no_setting_has_none(schedule):
    assert one_thread.make_setting(schedule) is None


def test_a_kernel_without_threads_stays_as_it_is():
    module, found = planned((6, 40))
    assert one_thread.remove_threads(found.module) is None
    setting = one_thread.make_setting(found.schedule)
    assert setting is not None
    made = replay_schedule(module, found.implementation, setting, CONDITIONS)
    assert tvm_ffi.structural_equal(made, found.module)
