"""What a stage tells of what it counts."""

from typing import Any

import pytest

from autopipe.host.copy_file import MIB
from autopipe.pipeline import counted
from autopipe.pipeline.counted import Watch
from autopipe.report.wording import describe_event, format_progress


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(counted, "time", found)
    return found


def test_the_time_left_is_that_of_the_mean_item(clock):
    events: list[Any] = []
    for _ in Watch("build", events.append).each("kernels planned", range(10)):
        clock.now += 2.0
    assert [event.done for event in events] == list(range(1, 10))
    assert [event.remaining for event in events] == [2.0 * (10 - done) for done in range(1, 10)]
    assert describe_event(events[3]) == "build      4 of 10 kernels planned  12 s left"


def test_of_uneven_steps_no_time_left_is_told(clock):
    events: list[Any] = []
    report_done = Watch("lower", events.append).count("passes run", 10, is_even=False)
    clock.now += 2.0
    report_done(4)
    assert describe_event(events[0]) == "lower      4 of 10 passes run"


def test_what_is_quick_is_not_told(clock):
    events: list[Any] = []
    for _ in Watch("build", events.append).each("kernels planned", range(100)):
        clock.now += counted.INTERVAL / 50
    assert [event.done for event in events] == [50]


def test_before_the_first_item_no_time_left_is_told(clock):
    events: list[Any] = []
    report_done = Watch("build", events.append).count("functions compiled", 48)
    clock.now += 2.0
    report_done(0)
    assert describe_event(events[0]) == "build      0 of 48 functions compiled"


def test_bytes_are_told_in_mebibytes_with_the_time_left(clock):
    events: list[Any] = []
    report_part = Watch("import", events.append).count_bytes("MiB stored", 600 * MIB, passes=2)
    for _ in range(2):
        clock.now += 3.0
        report_part(300 * MIB)
    assert [describe_event(event) for event in events] == [
        "import     150 of 600 MiB stored  9 s left",
        "import     300 of 600 MiB stored  6 s left",
    ]


def test_nothing_is_told_of_no_items_and_of_the_last_one(clock):
    events: list[Any] = []
    tell = Watch("verify", events.append).count("sizes compared", 2)
    clock.now += 10.0
    tell(2)
    assert list(Watch("verify", events.append).each("sizes compared", [])) == []
    assert not events


def test_what_can_not_be_counted_is_named():
    events: list[Any] = []
    Watch("build", events.append).begin("compiling 4 kernels")
    assert format_progress(events[0]) == "compiling 4 kernels"
