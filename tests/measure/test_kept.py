import math
from typing import Any

from autopipe.measure.kept import Kept
from autopipe.measure.measurement import Measurement, Repeatable


class Waiting:
    """In place of a trial: its child waits until it is closed, or lost."""

    def __init__(self):
        self.waits = True
        self.closed = False

    def close(self):
        self.waits, self.closed = False, True


def waiting() -> Any:
    return Waiting()


def candidate(task, schedule):
    return Repeatable(task, "direct", schedule, dict)  # type: ignore[arg-type]


def offered(kept, task, **times):
    """Offer a trial for each schedule; return them."""
    trials: dict[str, Any] = {name: waiting() for name in times}
    for name, seconds in times.items():
        kept.offer(candidate(task, name), trials[name], Measurement((seconds,)))
    return trials


def test_the_fastest_of_each_task_are_kept():
    kept = Kept()
    first = offered(kept, "first", a=5.0, b=2.0, c=4.0, d=3.0)
    second = offered(kept, "second", a=9.0)
    assert [name for name, trial in first.items() if trial.closed] == ["a"]
    assert kept.take(candidate("first", "a")) is None
    assert kept.take(candidate("second", "a")) is second["a"]
    assert kept.take(candidate("first", "b")) is first["b"]
    assert kept.take(candidate("first", "b")) is None, "whoever took it has it"
    kept.close()
    assert [name for name, trial in first.items() if not trial.closed] == ["b"]


def test_never_more_are_kept_than_may_be():
    kept = Kept(2)
    trials = [offered(kept, name, a=1.0)["a"] for name in ("first", "second", "third")]
    assert [trial.closed for trial in trials] == [False, False, True]
    assert offered(Kept(0), "first", a=1.0)["a"].closed


def test_a_time_is_no_reason_to_keep_what_failed_was_cut_or_can_not_be_asked_for_again():
    kept = Kept()
    for found in (Measurement(error="crashed"), Measurement((1.0,), cut=True)):
        trial = waiting()
        kept.offer(candidate("first", "a"), trial, found)
        assert trial.closed
        assert trial not in kept
    anyone = waiting()
    kept.offer(dict, anyone, Measurement((math.pi,)))  # type: ignore[arg-type]
    assert anyone.closed
    assert kept.take(dict) is None  # type: ignore[arg-type]


def test_a_child_that_is_lost_is_not_handed_out():
    kept = Kept()
    (trial,) = offered(kept, "first", a=1.0).values()
    trial.waits = False
    assert kept.take(candidate("first", "a")) is None
    assert trial.closed


def test_a_schedule_that_is_kept_twice_is_kept_once():
    kept = Kept()
    (one,) = offered(kept, "first", a=1.0).values()
    (other,) = offered(kept, "first", a=2.0).values()
    assert one.closed
    assert kept.take(candidate("first", "a")) is other
