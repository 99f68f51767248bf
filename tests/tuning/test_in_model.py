"""The in-model comparison decides the best record, and what breaks in it costs nothing."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic
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
from autopipe.schedules.engines import default, static
from autopipe.tuning.check_schedules import Checks
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.decision import in_model
from autopipe.tuning.decision.in_model import ModelComparison
from autopipe.tuning.decision.model_runs import TooLate
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.setup import ModelTasks, Setup
from autopipe.tuning.sized_models import SizedModel
from tests.schedules.engines.test_static import dense
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS, Trusting, task
from tests.schedules.tensors import module_of
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
    """Return a task of which the second schedule is faster in the model, and its comparison."""
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
        setup = Setup(
            plan=SimpleNamespace(tuning=SimpleNamespace(finalists=3), policy=None),  # type: ignore[arg-type]
            tasks=ModelTasks(
                every=[state.task], texts={}, modules={}, folder=tmp_path, lowered=Path("lowered")
            ),
            checks=Checks(
                journal=journal, maker=maker, inspector=Trusting(), failures=failures(tmp_path)
            ),
            bench=SimpleNamespace(  # type: ignore[arg-type]
                conditions=CONDITIONS, turn=SimpleNamespace(taken=nullcontext), touched=1
            ),
            deadline=Deadline(in_model=30.0),
            emit=told.append,
        )
        comparison = ModelComparison(setup)
        yield state, World(comparison, told)


class World:
    """A comparison, and what it works with."""

    def __init__(self, comparison, told):
        self.comparison, self.told = comparison, told

    @property
    def checks(self):
        return self.comparison.setup.checks

    @property
    def journal(self):
        return self.checks.journal

    def distrust(self, engine):
        checks = replace(self.checks, inspector=Trusting(engine))
        self.comparison = ModelComparison(replace(self.comparison.setup, checks=checks))

    def compare(self, *states):
        return self.comparison.compare(states)


def engine_of(state, opened):
    winner = opened.journal.winner(state)
    return winner and winner.proposal.by.engine


def test_who_is_faster_in_the_model_is_checked_and_wins(world):
    state, opened = world
    assert engine_of(state, opened) == "ansor"
    (found,) = opened.compare(state)
    assert found.times == {state.task.workload: pytest.approx((1.0,) * found.report.rounds)}
    assert engine_of(state, opened) == "autotvm"
    assert ["autotvm"] in opened.checks.inspector.asked


def test_what_is_wrong_gives_way_to_who_won_the_trials(world):
    state, opened = world
    opened.distrust("autotvm")
    (found,) = opened.compare(state)
    assert (found.report.changed, engine_of(state, opened)) == (0, "ansor")


def test_an_untuned_schedule_that_is_wrong_is_no_incumbent(world, monkeypatch):
    state, opened = world
    _, untuned = opened.journal.ranked(state)
    state.starts = {untuned.proposal.by: untuned.proposal.schedule}
    opened.distrust("autotvm")
    counts: list[Any] = []
    monkeypatch.setattr(
        Model, "__init__", lambda _, source, __: counts.append(len(source.bodies["task0"]))
    )
    (found,) = opened.compare(state)
    assert (counts, found.report.changed, engine_of(state, opened)) == ([1], 0, "ansor")


@pytest.mark.parametrize("crashed", [True, False])
def test_a_model_that_fails_leaves_it_to_the_trials(world, monkeypatch, crashed):
    state, opened = world
    how = failure.describe_ended(-11, "") if crashed else failure.describe_hung(30.0)
    monkeypatch.setattr(Model, "error", Failed(how))
    assert opened.compare(state) == ()
    assert engine_of(state, opened) == "ansor"
    kinds = [type(event).__name__ for event in opened.told]
    assert kinds == ["Progress", "Warn" if crashed else "Progress"]
    assert "the trials decide" in opened.told[-1].message


def test_without_time_for_a_comparison_the_trials_decide(world, monkeypatch):
    state, opened = world

    def late(_):
        raise TooLate

    monkeypatch.setattr("autopipe.tuning.decision.compare.FinalistComparison.decide", late)
    assert opened.compare(state) == ()
    assert engine_of(state, opened) == "ansor"
    assert opened.comparison.setup.deadline.list_skipped() == ("comparisons in the model (1)",)
    assert "no time to run" in opened.told[-1].message


@pytest.mark.parametrize(
    ("left", "seconds"), [(inf, 15.0), (200.0, 75.0), (32.0, 15.0), (25.0, 12.5)]
)
def test_the_comparison_takes_more_time_if_the_search_ended_early(
    world, monkeypatch, left, seconds
):
    _, opened = world
    monkeypatch.setattr("autopipe.tuning.deadline.monotonic", lambda: 0.0)
    deadline = replace(opened.comparison.setup.deadline, in_model=30.0, end=left)
    comparison = ModelComparison(replace(opened.comparison.setup, deadline=deadline))
    assert comparison._allot_seconds(2, 0) == pytest.approx(seconds)


@pytest.mark.fault("D20")
@pytest.mark.parametrize("left", [-1.0, 20.0])
def test_where_the_budget_of_time_is_spent_no_model_is_built(world, monkeypatch, left):
    state, opened = world
    opened.comparison.setup.deadline.end = monotonic() + left
    monkeypatch.setattr(in_model, "InModel", pytest.fail)
    assert opened.compare(state) == ()
    assert engine_of(state, opened) == "ansor"
    assert opened.comparison.setup.deadline.list_skipped() == ("comparisons in the model (1)",)


@pytest.fixture
def at_sizes(world, monkeypatch):
    """Return the same for a model that has the task at two sizes, and what was built of it."""
    state, opened = world
    built: list[Any] = []

    class Sized(Model):
        def __init__(self, source, left):
            assert left() == inf
            built.append({name: len(some) for name, some in source.bodies.items()})

    monkeypatch.setattr(in_model, "InModel", Sized)
    sized = [SizedModel(tvm.IRModule(), [state.task], {"rows": rows}) for rows in (32, 64)]
    monkeypatch.setattr(in_model, "load_sized_models", lambda *_: sized)
    return state, opened, built


def test_a_task_is_decided_at_the_first_size_that_has_it(at_sizes):
    state, opened, built = at_sizes
    found = opened.compare(state)
    assert built == [{"task0": 2}, {"task0": 1}]
    assert [one.report.sizes for one in found] == [{"rows": 32}, {"rows": 64}]
    assert [one.report.changed for one in found] == [1, 0]
    assert engine_of(state, opened) == "autotvm"


def test_who_won_at_one_size_stays_where_the_model_of_another_fails(at_sizes, monkeypatch):
    state, opened, built = at_sizes

    def build(self, _):
        if len(built) > 1:
            raise Failed(failure.describe_hung(15.0))

    monkeypatch.setattr(Model, "build", build)
    (found,) = opened.compare(state)
    assert found.report.sizes == {"rows": 32}
    assert engine_of(state, opened) == "autotvm"
    assert "rows 64" in opened.told[-1].message
