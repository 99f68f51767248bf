"""Runs that tune the same task at the same time, in one store."""

import pytest

from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.schedules.policy import Contender
from autopipe.tuning.journal import Journal
from autopipe.tuning.search.concurrent_runs import ConcurrentRuns
from tests.records.written import record
from tests.tuning.states import ANSOR, HERE, STATIC, TEMPLATES, state


@pytest.fixture
def journals(tmp_path):
    """Those of two runs."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        sessions = [Session.resume(tmp_path / name, 8) for name in ("one", "other")]
        yield [Journal(store, HERE, session) for session in sessions]


def write(journal, own, schedule, seconds, by=ANSOR):
    found = record(
        (seconds,), workload=own.task.workload, engine=by.engine, implementation=by.implementation,
        schedule=schedule, session=journal.session.name,
    )  # fmt: skip
    journal.store.add(HERE, own.text, [found])


def heard(others, own):
    return [(each.schedule, each.seconds) for each in others.news(own, ANSOR)]


def test_a_search_hears_once_what_other_runs_have_measured_since_it_began(journals):
    ours, theirs = journals
    own = state(contenders=(ANSOR,), starts={STATIC: "filled"})
    others = ConcurrentRuns(ours)
    write(theirs, own, "before", 2e-3)
    write(ours, own, "ours", 3e-3)
    assert [each.schedule for each in others.known(own, ANSOR)] == ["before", "ours"]
    assert heard(others, own) == []
    write(ours, own, "ours, too", 3e-3)
    write(theirs, own, "theirs", 1e-3)
    write(theirs, own, "of another engine", 1e-4, STATIC)
    write(theirs, own, "of another implementation", 1e-4, Contender("static", "winograd4"))
    assert heard(others, own) == [("theirs", 1e-3), ("of another engine", 1e-4)]
    assert own.best == own.bandit.arms[ANSOR].best == 1e-3  # of the arm itself
    assert heard(others, own) == []


def test_what_another_run_has_found_is_what_the_task_has_to_beat(journals):
    ours, theirs = journals
    own = state(contenders=(ANSOR,))
    own.best = 2e-3
    others = ConcurrentRuns(ours)
    others.known(own, ANSOR)
    write(theirs, own, "theirs", 1e-3)
    others.news(own, ANSOR)
    assert (own.best, own.trials, own.bandit.arms[ANSOR].best) == (1e-3, 0, 1e-3)
    own.bandit.count_batch(ANSOR, [1.5e-3], own.best, 1.0)
    assert own.bandit.arms[ANSOR].stats.brought == 0  # it was not this search's merit


def test_a_search_knows_the_filled_setting_of_the_same_implementation(journals):
    journal, _ = journals
    own = state(contenders=(TEMPLATES, ANSOR), starts={STATIC: "filled"})
    write(journal, own, "filled", 2e-3, STATIC)
    write(journal, own, "filled, too", 2e-3, Contender("static", "winograd4"))
    others = ConcurrentRuns(journal)
    assert [each.schedule for each in others.known(own, TEMPLATES)] == ["filled"]
    assert others.news(own, TEMPLATES) == []
