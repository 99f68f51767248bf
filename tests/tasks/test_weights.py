"""How many bytes of weights a model reads, and what schedules make of it."""

from autopipe.tasks.weights import count_weight_bytes
from tests.schedules.tasks import CONDITIONS
from tests.tuning.test_clock import MIB, dense


def test_weights_count_once_for_each_call_and_those_of_the_largest_library_alone():
    assert count_weight_bytes([]) == 0
    assert count_weight_bytes([dense(3, 1), dense(2, 9, calls=4)]) == 11 * MIB
    assert count_weight_bytes([dense(7, 1, label="@64"), dense(5, 1, label="")]) == 7 * MIB


def test_conditions_say_whether_they_stay_near():
    hardware = CONDITIONS.hardware
    assert not hardware.keeps_weights
    assert CONDITIONS.within(2 * hardware.l2).hardware.keeps_weights
    assert not CONDITIONS.within(3 * hardware.l2).hardware.keeps_weights
