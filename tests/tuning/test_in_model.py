"""What the finals decide is the best record, and what breaks in them costs nothing."""

from collections.abc import Callable
from contextlib import nullcontext
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tvm

from autopipe.compiler import module_io
from autopipe.measure.measurement import Measurement
from autopipe.processes import failure
from autopipe.processes.contained import Failed
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.safety.maker import Maker
from autopipe.schedules import one_thread
from autopipe.schedules.engines import default, static
from autopipe.tuning import in_model
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.final_models import TooLate
from autopipe.tuning.in_model import decide
from autopipe.tuning.journal import Journal
from autopipe.tuning.sized_models import SizedModel
from tests.schedules.engines.test_static import dense, module_of
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS, Trusting, task
from tests.tuning.states import ANSOR, TEMPLATES, state_of


class Model:
    """A model whose second schedules are twice as fast, or which fails."""

    error: Failed | None = None

    def __init__(self, source: Any, left: Callable[[], float]) -> None:
        assert {name: len(some) for name, some in source.bodies.items()} == {"task0": 2}
        assert left() == inf

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def build(self, place):
        if self.error:
            raise self.error

    def add(self, rank, functions):
        pass

    def round(self, places):
        return [{"task0": 2.0 - place.get("task0", 0)} for place in places]

    def unwatched(self):
        return 3.0

    def link(self, place):
        pass

    def whole(self, places):
        return [3.0 - place.get("task0", 0) for place in places]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Return a task with two schedules of which the second is faster in the model, and tools."""
    loops = module_of(*dense())
    state = state_of(task(), (ANSOR, TEMPLATES), text=tvm.ir.save_json(loops))
    monkeypatch.setattr(in_model, "InModel", Model)
    monkeypatch.setattr(module_io, "load_module", lambda _: None)
    told: list[Any] = []
    with (
        RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store,
        Maker({task().name: loops}, failures(tmp_path)) as maker,
    ):
        journal = Journal(store, Platform("t", "v", "d"), Session.resume(tmp_path))
        for by, engine, seconds in ((ANSOR, default, 1.0), (TEMPLATES, static, 1.1)):
            planned = engine.plan(loops, CONDITIONS)
            assert planned is not None
            journal.write(state, Proposal(by, planned.schedule), Measurement((seconds,)))
        yield (
            state,
            SimpleNamespace(
                journal=journal, maker=maker, inspector=Trusting(), emit=told.append, finals=30.0,
                lowered=Path("lowered"), every=[state.task], conditions=CONDITIONS, told=told,
                failures=failures(tmp_path), turn=SimpleNamespace(taken=nullcontext), touched=1,
                plan=SimpleNamespace(tuning=SimpleNamespace(finalists=3)), deadline=Deadline(),
            ),
        )  # fmt: skip


def engine_of(state, tools):
    winner = tools.journal.winner(state)
    return winner and winner.proposal.by.engine


def test_who_is_faster_in_the_model_is_checked_and_wins(world):
    state, tools = world
    assert engine_of(state, tools) == "ansor"
    (found,) = decide([state], tools)
    assert found.times == {state.task.workload: pytest.approx((1.0,) * found.report.rounds)}
    assert engine_of(state, tools) == "autotvm"
    assert ["autotvm"] in tools.inspector.asked


def test_what_is_wrong_gives_way_to_who_won_the_trials(world):
    state, tools = world
    tools.inspector = Trusting("autotvm")
    (found,) = decide([state], tools)
    assert (found.report.changed, engine_of(state, tools)) == (0, "ansor")


def test_an_untuned_schedule_that_is_wrong_is_no_incumbent(world, monkeypatch):
    state, tools = world
    _, untuned = tools.journal.ranked(state)
    state.starts = {untuned.proposal.by: untuned.proposal.schedule}
    tools.inspector = Trusting("autotvm")
    counts: list[Any] = []
    monkeypatch.setattr(
        Model, "__init__", lambda _, source, __: counts.append(len(source.bodies["task0"]))
    )
    (found,) = decide([state], tools)
    assert (counts, found.report.changed, engine_of(state, tools)) == ([1], 0, "ansor")


@pytest.mark.parametrize("crashed", [True, False])
def test_a_model_that_fails_leaves_it_to_the_trials(world, monkeypatch, crashed):
    state, tools = world
    how = failure.ended(-11, "") if crashed else failure.hung(30.0)
    monkeypatch.setattr(Model, "error", Failed(how))
    assert decide([state], tools) == ()
    assert engine_of(state, tools) == "ansor"
    kinds = [type(event).__name__ for event in tools.told]
    assert kinds == ["Progress", "Warn" if crashed else "Progress"]
    assert "the trials decide" in tools.told[-1].message


def test_without_finals_a_kernel_keeps_its_threads(world, monkeypatch):
    """In trials it may win without: there a second core has to wake up."""
    state, tools = world
    monkeypatch.setattr(Model, "error", Failed(failure.hung(30.0)))
    _, other = tools.journal.ranked(state)
    alone = one_thread.setting(other.proposal.schedule)
    assert alone is not None
    tools.plan.tuning.finalists = 2
    tools.journal.write(state, Proposal(TEMPLATES, alone), Measurement((0.9,)))
    assert tools.journal.winner(state).proposal.schedule == alone
    assert decide([state], tools) == ()
    assert engine_of(state, tools) == "ansor"
    assert ["ansor"] in tools.inspector.asked, "who wins now is checked, too"


def test_without_time_for_finals_the_whole_is_told_with_who_wins_then(world, monkeypatch):
    """That is nobody on one thread."""
    state, tools = world
    _, other = tools.journal.ranked(state)
    alone = one_thread.setting(other.proposal.schedule)
    assert alone is not None
    tools.journal.write(state, Proposal(TEMPLATES, alone), Measurement((0.9,)))
    tools.plan.tuning.finalists = 2
    places = []
    monkeypatch.setattr(Model, "build", lambda _, place: places.append(place))

    def late(_):
        raise TooLate

    monkeypatch.setattr("autopipe.tuning.finals.Finals.decide", late)
    (found,) = decide([state], tools)
    assert places == [{"task0": 1}]
    assert found.evidence == {}
    assert found.report.whole == pytest.approx(2.0)
    assert engine_of(state, tools) == "ansor"
    assert "no time to run" in tools.told[-1].message


@pytest.mark.fault("D20")
def test_where_the_budget_of_time_is_spent_no_model_is_built(world, monkeypatch):
    state, tools = world
    tools.deadline.end = 0.0
    monkeypatch.setattr(in_model, "InModel", pytest.fail)
    assert decide([state], tools) == ()
    assert engine_of(state, tools) == "ansor"
    assert tools.deadline.told() == ("comparisons in the model (1)",)


@pytest.fixture
def at_sizes(world, monkeypatch):
    """Return the same for a model that has the task at two sizes, and what was built of it."""
    state, tools = world
    built: list[Any] = []

    class Sized(Model):
        def __init__(self, source, left):
            assert left() == inf
            built.append({name: len(some) for name, some in source.bodies.items()})

    monkeypatch.setattr(in_model, "InModel", Sized)
    sized = [SizedModel(tvm.IRModule(), [state.task], {"rows": rows}) for rows in (32, 64)]
    monkeypatch.setattr(in_model, "models", lambda *_: sized)
    return state, tools, built


def test_a_task_is_decided_at_the_first_size_that_has_it(at_sizes):
    state, tools, built = at_sizes
    found = decide([state], tools)
    assert built == [{"task0": 2}, {"task0": 1}]
    assert [one.report.sizes for one in found] == [{"rows": 32}, {"rows": 64}]
    assert [one.report.changed for one in found] == [1, 0]
    assert engine_of(state, tools) == "autotvm"


def test_who_won_at_one_size_stays_where_the_model_of_another_fails(at_sizes, monkeypatch):
    state, tools, built = at_sizes

    def build(self, _):
        if len(built) > 1:
            raise Failed(failure.hung(15.0))

    monkeypatch.setattr(Model, "build", build)
    (found,) = decide([state], tools)
    assert found.report.sizes == {"rows": 32}
    assert engine_of(state, tools) == "autotvm"
    assert "rows 64" in tools.told[-1].message


def test_settings_on_one_thread_lose_what_no_size_has_decided(at_sizes, monkeypatch):
    state, tools, _ = at_sizes
    other = state_of(task(1), (ANSOR, TEMPLATES))
    alone = Proposal(TEMPLATES, '{"threads": 1, "width": 16}')
    for each in (state, other):
        tools.journal.write(each, alone, Measurement((2.0,)))
    decide([state, other], tools)
    barred = [tools.journal.has_verdict(each, alone, "excluded") for each in (state, other)]
    assert barred == [False, True]
