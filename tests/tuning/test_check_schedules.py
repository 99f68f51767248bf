"""The best record of a task is checked before it may win."""

import json
from typing import Any

import pytest
import tvm

from autopipe.config.schedules import Rule
from autopipe.measure.measurement import Measurement
from autopipe.safety.maker import Maker
from autopipe.schedules.engines import static
from autopipe.tuning.check_schedules import Checks, check_winners
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from tests.schedules.engines.test_static import dense
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS, Trusting, task
from tests.schedules.tensors import module_of
from tests.traces.hostile import forge
from tests.tuning.states import ANSOR, TEMPLATES, state_of


@pytest.fixture(scope="module")
def module():
    return module_of(*dense())


@pytest.fixture(scope="module")
def schedule(module):
    planned = static.plan(module, CONDITIONS)
    assert planned is not None
    return planned.schedule


@pytest.fixture
def maker(module, tmp_path):
    with Maker({task().name: module}, failures(tmp_path)) as maker:
        yield maker


@pytest.fixture
def state(module):
    return state_of(task(), (ANSOR, TEMPLATES), rule=Rule(), text=tvm.ir.save_json(module))


def check(state, journal, inspector, maker):
    kept: Any = None
    checks = Checks(journal=journal, maker=maker, inspector=inspector, failures=kept)
    check_winners([state], checks)


def best(journal, state):
    winner = journal.winner(state)
    return winner and winner.proposal


def test_a_wrong_winner_gives_way_to_the_next_for_good(journal, state, schedule, maker):
    journal.write(state, Proposal(ANSOR, schedule), Measurement((1.0,)))
    journal.write(state, Proposal(TEMPLATES, schedule), Measurement((2.0,)))
    inspector = Trusting("ansor")
    check(state, journal, inspector, maker)
    assert inspector.asked == [["ansor"], ["autotvm"]]
    assert best(journal, state).by.engine == "autotvm"
    assert state.best == 2.0
    check(state, journal, inspector, maker)
    assert inspector.asked[2:] == [[]]
    again = Journal(journal.store, journal.platform, journal.session)
    assert best(again, state).by.engine == "autotvm"


def test_a_task_may_have_nothing_left(journal, state, schedule, maker):
    journal.write(state, Proposal(ANSOR, schedule), Measurement((1.0,)))
    check(state, journal, Trusting("ansor"), maker)
    assert journal.winner(state) is None
    assert state.best == float("inf")


def test_a_record_that_makes_no_schedule_here_is_left_out_but_kept(journal, state, schedule, maker):
    old = json.dumps({**json.loads(schedule), "version": 0})
    journal.write(state, Proposal(TEMPLATES, old), Measurement((1.0,)))
    journal.write(state, Proposal(TEMPLATES, schedule), Measurement((2.0,)))
    check(state, journal, Trusting(), maker)
    assert best(journal, state).schedule == schedule
    again = Journal(journal.store, journal.platform, journal.session)
    assert best(again, state).schedule == old


@pytest.mark.fault("H4")
def test_a_trace_with_code_in_the_store_costs_itself_and_is_told(
    journal, state, schedule, module, tmp_path
):
    said: list[str] = []
    forged = forge(module, f"touch {tmp_path / 'marker'}")
    journal.write(state, Proposal(ANSOR, forged), Measurement((1.0,)))
    journal.write(state, Proposal(TEMPLATES, schedule), Measurement((2.0,)))
    with Maker({task().name: module}, failures(tmp_path, said)) as maker:
        check(state, journal, Trusting(), maker)
    assert best(journal, state).by.engine == "autotvm"
    (told,) = said
    assert "a record of ansor on direct is left out: instruction 3, Annotate: key may not" in told
    assert not (tmp_path / "marker").exists()
