from dataclasses import replace

import pytest

from autopipe.environment.machines import MACHINES
from autopipe.schedules import cost
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.roofline import estimate_shares, lower_bound_ns
from autopipe.tasks.tensor import Tensor
from tests.schedules.tasks import task

ZEN_4 = MACHINES["zen-4"]
TWO = HardwareParams(512, 32, 2, machine=ZEN_4, l2=1 << 18, l3=1 << 20)


def test_a_task_takes_what_its_arithmetic_or_its_memory_takes():
    busy = task(flops=4 * 8 * 2 * 1000.0)  # units of 256 bits, two cores
    assert lower_bound_ns(busy, TWO) == pytest.approx(1000.0 / ZEN_4.frequency_ghz)
    near = task(flops=1.0).model_copy(update={"bytes": 1 << 20})
    far = task(flops=1.0).model_copy(update={"bytes": 1 << 21})
    near_speed = 2 * ZEN_4.l3_bytes_per_cycle * ZEN_4.frequency_ghz
    assert lower_bound_ns(near, TWO) == pytest.approx((1 << 20) / near_speed)
    assert lower_bound_ns(far, TWO) == pytest.approx((1 << 21) / 2 / ZEN_4.memory_bytes_per_ns)


def test_short_elements_and_tiles_lower_the_bound_of_arithmetic():
    float32, int8 = (cost.fma_ns(1e9, bits, TWO) for bits in (32, 8))
    assert float32 == pytest.approx(4 * int8)
    mixed = task(flops=1e9).model_copy(
        update={"inputs": (Tensor(shape=(1,), dtype="int8"),),
                "outputs": (Tensor(shape=(1,), dtype="int32"),)}
    )  # fmt: skip
    assert lower_bound_ns(mixed, TWO) == pytest.approx(int8 / 2)
    server = replace(
        TWO, machine=MACHINES["intel-sapphire-rapids"], features=frozenset({"amx-tile"})
    )
    plain = replace(server, features=frozenset())
    assert cost.fma_ns(1e9, 16, server) == pytest.approx(cost.fma_ns(1e9, 16, plain) / 8)
    assert cost.fma_ns(1e9, 32, server) == cost.fma_ns(1e9, 32, plain)


@pytest.mark.parametrize("row", MACHINES.values(), ids=lambda row: row.family)
def test_a_working_set_of_the_next_level_is_read_more_slowly(row):
    hardware = replace(TWO, machine=row, l1=row.l1_bytes, l2=row.l2_bytes, l3=row.l3_bytes, cores=1)
    sizes = (row.l1_bytes, row.l2_bytes, row.l3_bytes, 2 * row.l3_bytes)
    speeds = [cost.level_bytes_per_ns(size, hardware) for size in sizes]
    assert speeds == sorted(speeds, reverse=True)
    assert cost.lower_bound_ns(0.0, sizes[3], 32, hardware) == pytest.approx(
        sizes[3] / row.memory_bytes_per_ns
    )


@pytest.mark.parametrize("row", MACHINES.values(), ids=lambda row: row.family)
def test_two_threads_pay_where_they_end_before_one(row):
    hardware = replace(TWO, machine=row)
    for nanoseconds, pays in ((5_500.0, True), (5_499.0, False)):
        assert cost.threads_pay(nanoseconds, row) == pays
        assert (cost.parallel_ns(nanoseconds, 2, hardware) <= nanoseconds) == pays
    assert cost.parallel_ns(3_000.0, 3, hardware) == 2_000.0 + cost.start_ns(row)


def test_shares_count_calls_and_sum_to_one():
    found = estimate_shares([task(0, flops=1e9, calls=3), task(1, flops=1e9)], TWO)
    assert [each.share for each in found] == pytest.approx([0.75, 0.25])


def test_tasks_that_cost_nothing_have_no_share():
    assert [each.share for each in estimate_shares([task(flops=0.0)], TWO)] == [0.0]
