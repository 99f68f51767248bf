import math

import pytest

from autopipe.measure.measurement import Measurement, to_measurement


@pytest.mark.fault("D5")
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_can_not_be_true_is_a_failure(value):
    found = to_measurement((0.1, value, 0.2), cut=False)
    assert found.error == f"the timer returned {value!r} seconds"
    assert found.median == math.inf


def test_no_time_at_all_is_a_failure():
    assert to_measurement((), cut=False).error == "the timer returned no times"


@pytest.mark.fault("D18")
def test_the_median_ignores_a_repeat_that_was_disturbed():
    assert to_measurement((1.0, 100.0, 1.1), cut=False) == Measurement((1.0, 100.0, 1.1))
    assert to_measurement((1.0, 100.0, 1.1), cut=False).median == 1.1
