"""Times that others have written down."""

import pytest

from autopipe.records.times import list_untrue_times
from tests.artifacts.examples import best_record
from tests.lock.test_records import task
from tests.support.table import each_row

TARGET = {"kind": "llvm", "num_cores": 2}
TASK = task(0, "0f").model_copy(update={"flops": 8e13 * 1e-6})
"""A microsecond of work, at the least."""


@pytest.mark.fault("L4")
@each_row(
    "seconds, told",
    [
        ([1e-6, 2e-6], None),
        ([2e-6, 0.9e-6], "9.0e-07 s, which no processor reaches"),
        ([1e-15], "1.0e-15 s, which no processor reaches"),
    ],
)
def test_times_that_can_not_be_true_are_named(seconds, told):
    record = best_record("0f", seconds=seconds)
    expected = {} if told is None else {"0f": f"task task0: {told}"}
    assert list_untrue_times([record], [TASK], TARGET) == expected


def test_of_an_unknown_task_only_a_cycle_is_asked():
    records = [best_record(w, seconds=(s,)) for w, s in (("1f", 1e-9), ("2f", 1e-11))]
    assert list_untrue_times(records, [TASK], TARGET).keys() == {"2f"}


@pytest.mark.fault("L4")
def test_times_inside_the_model_have_to_be_possible_too():
    record = best_record("0f", seconds=(2e-6,), inside=(2e-6, 1e-15))
    assert list_untrue_times([record], [TASK], TARGET).keys() == {"0f"}
