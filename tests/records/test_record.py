import pytest

from autopipe.records.record import Record


@pytest.mark.fault("D18")
@pytest.mark.parametrize(
    ("seconds", "unsteady"),
    [((1.0, 1.1, 0.95), False), ((1.0, 100.0, 1.0), True), ((1.0,), False), ((), False)],
)
def test_a_time_that_was_disturbed_is_flagged_and_its_median_stands(seconds, unsteady):
    record = Record(
        workload="w", engine="e", implementation="i", schedule="s", seconds=seconds, error=None,
        cut=False, measured="", session="",
    )  # fmt: skip
    assert record.unsteady is unsteady
    assert not seconds or record.median == 1.0
