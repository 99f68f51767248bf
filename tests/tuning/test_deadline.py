"""A budget of time is for all steps: what there is no time for is left out, and reported."""

import math
from contextlib import nullcontext
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
import tvm

from autopipe.config.schedules import Rule
from autopipe.measure.measurement import Measurement
from autopipe.measure.turn import TurnTimeout
from autopipe.pipeline.counted import Watch
from autopipe.safety.checking import Checker, Postponed
from autopipe.safety.inspection import NO_TIME, Inspector
from autopipe.safety.job import Piece
from autopipe.safety.maker import Maker
from autopipe.schedules.engines import static
from autopipe.tuning.check_schedules import Checks, check_winners
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.decision.extras import Extras
from autopipe.tuning.decision.model_runs import Limits, Pace, TooLate
from autopipe.tuning.decision.repeat import measure_repeats
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.progress import ProgressReporter
from tests.schedules.engines.test_static import dense
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS, task
from tests.schedules.tensors import module_of
from tests.stages.small_tuning import FACTS
from tests.tuning.states import ANSOR, STATIC, TEMPLATES, state_of, trials_of

NOBODY: Any = (lambda _: [], lambda *_: None)


def test_what_is_kept_for_later_steps_is_not_left():
    deadline = Deadline(end=monotonic() + 1000, kept=400)
    assert 500 < deadline.left() <= 600
    assert Deadline().left() == math.inf


class Timer:
    """Fails to get its turn, or must not be asked."""

    def rounds(self, candidates, count):
        raise TurnTimeout


@pytest.mark.parametrize("end", [0.0, math.inf], ids=["no time", "no turn"])
def test_the_trials_decide_where_there_is_no_time_to_repeat_them(journal, end):
    deadline = Deadline(end=end)
    state = state_of(task(flops=0.0), (ANSOR, TEMPLATES), rule=Rule())
    journal.write(state, Proposal(ANSOR, "a1"), Measurement((2.0,)))
    journal.write(state, Proposal(TEMPLATES, "t1"), Measurement((1.0,)))
    trials = trials_of(journal, [state])
    measure_repeats(
        trials,
        runner=Timer(),
        extras=Extras(),
        deadline=deadline,
        watch=Watch("tune", lambda _: None),
    )
    assert journal.winner(state).median == 1.0
    assert deadline.list_skipped() == ("repeated measurements (1)",)


def test_a_winner_that_was_not_checked_for_lack_of_time_is_checked_later(journal, tmp_path):
    module = module_of(*dense())
    planned = static.plan(module, CONDITIONS)
    assert planned is not None
    state = state_of(task(), (ANSOR, TEMPLATES), rule=Rule(), text=tvm.ir.save_json(module))
    journal.write(state, Proposal(TEMPLATES, planned.schedule), Measurement((1.0,)))
    seconds = 0.0
    kept = failures(tmp_path)
    checker = Checker(CONDITIONS, lambda: seconds)
    inspector = Inspector(tmp_path, FACTS, checker, kept)
    suspect = Piece("checking", "t", module, *STATIC, planned.schedule, planned.module)
    (outcome,) = checker.check([suspect])
    assert isinstance(outcome, Postponed)
    assert inspector.judge([suspect]) == [NO_TIME]
    with Maker({state.task.name: module}, kept) as maker:
        checks = Checks(journal=journal, maker=maker, inspector=inspector, failures=kept)
        check_winners([state], checks)
        assert (state.best, verdicts(journal, state)) == (1.0, [])
        seconds = 60.0
        check_winners([state], checks)
    assert (state.best, verdicts(journal, state)) == (1.0, ["passed"])


def verdicts(journal, state):
    return [one.check for one in journal.evidence(state) if one.check]


def test_waiting_for_a_turn_ends_the_comparison_in_the_model():
    def taken():
        raise TurnTimeout

    pace = Pace(Limits(100.0, taken, lambda _: ()))
    with pytest.raises(TooLate):
        pace.rounds(seconds_of, [{}], 1.0, 1, 1)
    pace = Pace(Limits(0.0, nullcontext, lambda _: ()))
    with pytest.raises(TooLate):
        pace.rounds(seconds_of, [{}], 1.0, 1, 1)


def seconds_of(places):
    return [0.0] * len(places)


@pytest.mark.parametrize(
    ("rate", "left", "shown"),
    [(10, math.inf, 6.0), (10, 0.5, 4.5), (0, 9.0, 13.0), (0, -1.0, 3.0), (0, -9.0, 0.0)],
)
def test_the_time_left_is_the_smaller_of_both_and_what_is_kept(monkeypatch, rate, left, shown):
    heard: list[Any] = []
    clock = iter((0.0, 0.0, 1.0))
    monkeypatch.setattr("autopipe.tuning.progress.monotonic", lambda: next(clock))
    state: Any = SimpleNamespace(trials=0, failed=0, best=math.inf, task=task())
    deadline: Any = SimpleNamespace(left=lambda: left, kept=4.0)
    reporter = ProgressReporter([state], 30, heard.append, deadline=deadline)
    state.trials = rate
    reporter.emit()
    assert heard[0].remaining == shown
