"""Down the chain: a record, the fallbacks, the plain loops."""

from types import SimpleNamespace

import pytest

from autopipe.config.match import Match
from autopipe.config.schedules import Rule
from autopipe.errors import StageError
from autopipe.schedules import implementations
from autopipe.schedules.engines import static
from autopipe.schedules.policy import Policy
from tests.artifacts.examples import best_record
from tests.schedules.engines.test_static import dense
from tests.schedules.made import choose_one
from tests.schedules.tasks import CONDITIONS, Trusting, task
from tests.schedules.tensors import module_of

POLICY = Policy((Rule(),), ("static", "default"))


@pytest.fixture(scope="module")
def workload():
    return module_of(*dense())


@pytest.fixture(scope="module")
def record(workload):
    planned = static.plan(workload, CONDITIONS)
    assert planned is not None
    return best_record(engine="autotvm", seconds=(3.0, 1.0, 2.0), schedule=planned.schedule)


@pytest.fixture
def chosen(tmp_path):
    """Choose, and return the choice and the inspector that was asked."""

    def chosen(workload, record=None, *, wrong=(), policy=POLICY, share=0.0, **fields):
        inspector = Trusting(*wrong)
        one = choose_one(tmp_path, task(**fields), workload, record, policy, inspector, share)
        return one, inspector

    return chosen


def test_a_record_is_first(chosen, workload, record):
    found, inspector = chosen(workload, record)
    assert (found.engine, found.seconds, found.reason) == ("autotvm", 2.0, "best record")
    assert (found.checked, found.rule, found.rejected) == (True, 0, ())
    assert inspector.asked == [["autotvm"]]


@pytest.mark.fault("D9")
def test_without_a_record_the_fallback_serves(chosen, workload):
    found, _ = chosen(workload)
    assert (found.engine, found.seconds, found.reason) == ("static", None, "no record")


def test_what_is_wrong_falls_to_the_next(chosen, workload, record):
    found, inspector = chosen(workload, record, wrong=("autotvm", "static"))
    assert (found.engine, found.reason) == ("default", "static on direct is wrong")
    assert inspector.asked == [["autotvm"], ["static"], ["default"]]
    assert [each.engine for each in found.rejected] == ["autotvm", "static"]
    assert found.rejected[0].reason == "off by 1"
    assert found.checked


def test_the_plain_loops_are_the_end_of_the_chain(chosen, workload):
    found, _ = chosen(workload, wrong=("static", "default"))
    assert (found.engine, found.schedule, found.checked) == ("none", None, True)
    assert found.module is workload
    with pytest.raises(StageError, match="nothing is left to build it with"):
        chosen(workload, wrong=("static", "default", "none"))


def test_the_rule_of_the_task_says_which_fallback(chosen, workload):
    heavy = Rule(match=Match(share=0.5), fallback=("default",))
    policy = Policy((heavy,), ("static",))
    assert chosen(workload, policy=policy, share=0.6)[0].engine == "default"
    found, _ = chosen(workload, policy=policy, share=0.4)
    assert (found.engine, found.rule) == ("static", None)


def test_an_implementation_that_is_not_allowed_is_not_chosen(chosen, workload, monkeypatch):
    other = SimpleNamespace(NAME="other", FAST=False, rewrite=lambda w: w, gain=lambda *_: 2.0)
    monkeypatch.setattr(implementations, "load_implementations", lambda: (other,))
    assert chosen(workload)[0].implementation == "other"
    policy = Policy((Rule(implementations=("direct",)),), ("static", "default"))
    assert chosen(workload, policy=policy)[0].implementation == "direct"
