import pytest

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.roofline import cycles, with_shares
from tests.schedules.tasks import task

TWO = HardwareParams(vector_bits=512, registers=32, cores=2, l3=1 << 20)


def test_a_task_takes_what_its_arithmetic_or_its_memory_takes():
    assert cycles(task(flops=4 * 16 * 2 * 1000.0), TWO) == 1000.0
    near = task(flops=1.0).model_copy(update={"bytes": 1 << 20})
    far = task(flops=1.0).model_copy(update={"bytes": 1 << 21})
    assert cycles(far, TWO) == 8 * cycles(near, TWO)
    assert cycles(near, TWO) > 1


def test_shares_count_calls_and_sum_to_one():
    found = with_shares([task(0, flops=1e9, calls=3), task(1, flops=1e9)], TWO)
    assert [each.share for each in found] == pytest.approx([0.75, 0.25])


def test_tasks_that_cost_nothing_have_no_share():
    assert [each.share for each in with_shares([task(flops=0.0)], TWO)] == [0.0]
