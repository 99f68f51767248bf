"""Who is asked again before a claim counts as a lie."""

from types import SimpleNamespace
from typing import Any

import pytest

from autopipe.measure.measurement import Measurement
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.tuning.journal import Journal, Proposal
from autopipe.tuning.runners.dask import DaskRunner
from autopipe.tuning.runners.opinions import Doubts, Opinion, Witnesses, agree
from autopipe.tuning.vetting import Claim, Vetting
from tests.schedules.tasks import task
from tests.tuning.states import ANSOR, state_of


class Others:
    """Two who say that anything takes 9 ms; `names` have been told of before the claim is."""

    witnesses = 2

    def __init__(self, names=()):
        self.doubts = Doubts()
        self.names = names
        self.confronted: list[str] = []

    def witnessed(self, candidates):
        for name in self.names:
            self.doubts.add(name, "two others say that its times are not true")
        return Opinion([Measurement((9e-3,), by="b")] * len(candidates))

    def confront(self, worker, candidate, why):
        self.confronted.append(worker)


@pytest.fixture
def journal(tmp_path):
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        yield Journal(store, Platform("t", "v", "d"), Session.resume(tmp_path))


def vetted(journal, others):
    """Have a worker claim 1 ms for a schedule; return the task."""
    state = state_of(task(), (ANSOR,))
    made: Any = SimpleNamespace()
    claim = Claim(state, Proposal(ANSOR, "s"), Measurement((1e-3,), by="a"))
    journal.write(*claim)
    assert Vetting(journal, others, [state]).vet([claim], lambda *_: made) == [claim]
    return state


def test_a_claim_that_is_not_repeated_gets_the_time_that_others_find(journal):
    others = Others()
    state = vetted(journal, others)
    assert others.confronted == ["a"]
    assert [row.record.seconds for row in journal.rows(state)] == [(9e-3,)]
    assert (state.best, journal.session.trials) == (9e-3, 1)
    assert journal.doubted == set()


def test_who_was_found_out_meanwhile_is_asked_nothing_more(journal):
    others = Others(names=["a"])
    state = vetted(journal, others)
    assert others.confronted == []
    assert journal.doubted == {"a"}
    assert journal.rows(state) == []


def test_who_is_gone_is_not_confronted():
    witnesses: Witnesses[Any] = Witnesses(lambda: ["b"], lambda _: {}, lambda: None, agree)
    runner: Any = SimpleNamespace(
        _timers=lambda *_: (witnesses, []), _here=None, doubts=Doubts()
    )  # fmt: skip
    DaskRunner.confront(runner, "a", SimpleNamespace(), "not true")  # type: ignore[arg-type]
    assert runner.doubts.why == {}
