"""The table of what tuning left on the table."""

from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.pipeline.events import TuningHeadroom
from autopipe.report.event_table import list_event_lines
from autopipe.report.headroom import SHOWN, list_headroom
from autopipe.report.wording import describe_event

COLUMNS = 79


def headroom(name="fused_conv2d_add_relu", *, left=0.01, ended="all trials are spent", **fields):
    given = {"share": 0.125, "untuned": 412e-6, "tuned": 388e-6, "bound": 301e-6, "trials": 48}
    return TaskHeadroom(name=name, left=left, ended=ended, **{**given, **fields})


def test_a_row_has_the_times_the_bound_and_the_reason():
    _, line = list_headroom([headroom()])
    words = "v2d_add_relu  12.5%  412 us  388 us  301 us   1.0%     48  all trials are spent"
    assert line == words


def test_rows_fit_a_terminal():
    rows = [headroom(f"fused_{'long_' * at}relu", ended="x" * 3 * at) for at in range(20)]
    lines = list(list_headroom(rows))
    assert max(map(len, lines)) <= COLUMNS
    assert len(lines) == SHOWN + 2


def test_the_tasks_with_the_most_left_come_first_and_the_others_are_summed():
    rows = [headroom(f"t{at}", left=at / 100, trials=at, share=0.05) for at in range(10)]
    _, first, *_, others = list_headroom(rows)
    assert first.split()[0] == "t9"
    assert others.split() == ["2", "others", "10.0%", "1.0%", "1"]


def test_what_is_unknown_is_a_dash():
    _, line = list_headroom([headroom("t", untuned=None, bound=0.0)])
    assert line.split()[1:6] == ["12.5%", "-", "388", "us", "-"]


def test_the_event_has_the_table_and_a_line():
    event = TuningHeadroom(stage="tune", tasks=(headroom(), headroom("b", left=0.02)))
    assert list(list_event_lines(event)) == list(list_headroom(event.tasks))
    assert (
        describe_event(event).split("  ")[-1] == "3% of the time is above the bounds of the machine"
    )
