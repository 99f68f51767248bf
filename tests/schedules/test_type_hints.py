import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import _type_checker

from autopipe.schedules import type_hints
from tests.schedules.bad_schedules import doubled


def test_arguments_of_primitives_are_checked_as_before():
    type_hints.remember()
    assert _type_checker._dispatcher.cache_info() is not None
    sch = Schedule(doubled())
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    loop = sch.get_loops(block)[0]
    for _ in range(2):
        with pytest.raises(TypeError, match='"loop" has wrong type'):
            sch.split(3.5, [None, 2])
    assert len(sch.split(loop, [None, 2])) == 2
