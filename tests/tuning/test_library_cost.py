"""A library that is shipped has to be worth its size."""

from types import SimpleNamespace
from typing import Any

import pytest

from autopipe.measure.measurement import Measurement
from autopipe.schedules.policy import Contender
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.search import library_cost as price
from tests.schedules.tasks import task
from tests.support.table import each_row
from tests.tuning.states import TEMPLATES, state_of

LIBRARY = Contender("autotvm", "openblas")


def states(journal, *times):
    """Return tasks with these times, with generated code and with the library; 0 for none."""
    found = [state_of(task(index, calls=2), (TEMPLATES, LIBRARY)) for index in range(len(times))]
    for state, pair in zip(found, times, strict=True):
        for by, seconds in zip((TEMPLATES, LIBRARY), pair, strict=True):
            if seconds:
                journal.write(state, Proposal(by, f"{by.implementation}"), Measurement((seconds,)))
    return found


def test_what_a_library_takes_off_is_a_part_of_all_tasks(journal):
    some = states(journal, (2.0, 1.0), (1.0, 3.0), (5.0, 0))
    assert price.compute_library_gain("openblas", some, journal) == pytest.approx(1 / 8)


def test_a_library_that_nobody_wins_with_or_that_is_needed_anyway_has_no_gain(journal):
    first, second = states(journal, (1.0, 2.0), (0, 1.0))
    assert price.compute_library_gain("openblas", [first], journal) is None
    assert price.compute_library_gain("openblas", [first, second], journal) is None
    assert price.compute_library_gain("openblas", [], journal) is None


def test_a_library_below_its_price_wins_no_task(journal, monkeypatch):
    library = SimpleNamespace(name="openblas")
    monkeypatch.setattr(price, "LIBRARIES", (library,))
    monkeypatch.setattr(price, "_compute_library_size", lambda _: 24 << 20)
    (state,) = states(journal, (1.0, 0.98))
    told: list[Any] = []

    @each_row("asked, won", [(0.0, "openblas"), (0.0005, "openblas"), (0.001, "direct")])
    def check(asked, won):
        price.leave_out_libraries([state], journal=journal, price=asked, emit=told.append)
        best = journal.winner(state)
        assert best is not None
        assert best.proposal.by.implementation == won

    check()
    assert len(told) == 1
    assert "2.0% of the time is less than 2.4%" in told[0].message
