"""Section `tuning.measure` where devices measure."""

import pytest

from tests.config.conftest import GOOD
from tests.support.table import each_row

TARGET = "target: {mcpu: cortex-a72, mtriple: aarch64-linux-gnu, num_cores: 4}\n"


def measuring(fields):
    start = GOOD.replace("  budget:", f"  measure: {{runner: rpc, {fields}}}\n  budget:")
    return start + TARGET


@pytest.mark.fault("D12")
@each_row(
    "fields, said",
    [
        ('key: "rasp:4", tracker: "127.0.0.1:9190"', "tuning.measure.key: 'rasp:4' should match"),
        ('key: rasp, tracker: "10.0.0.7:9190"', "is another machine, and TVM's RPC has neither"),
        ("key: rasp, tracker: farm", "should be host and port"),
        ('tracker: "127.0.0.1:9190"', "tuning.measure.key: "),
    ],
)
def test_a_tracker_that_can_not_be_asked_is_refused(refused, fields, said):
    found = refused(measuring(fields))
    assert any(said in line for line in found)


def test_a_tracker_elsewhere_is_taken_where_the_file_says_what_that_means(read):
    risk = "anyone_on_the_network_may_run_code"
    given = f'key: rasp, tracker: "10.0.0.7:9190", {risk}: true'
    measure = read(measuring(given)).tuning.measure
    assert measure.tracker == "10.0.0.7:9190"
    assert {"tracker", risk}.isdisjoint(measure.model_dump()), "it is in no key"
