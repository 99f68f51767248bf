"""Down the chain: a record, the fallbacks, the plain loops."""

import pytest

from autopipe.config.match import Match
from autopipe.config.schedules import Rule
from autopipe.schedules import static
from autopipe.schedules.choice import Asked, choose
from autopipe.schedules.policy import Policy
from tests.schedules.tasks import CONDITIONS, Trusting, task
from tests.schedules.test_static import dense, module_of

POLICY = Policy((Rule(),), ("static", "default"))


@pytest.fixture(scope="module")
def workload():
    return module_of(*dense())


@pytest.fixture(scope="module")
def record(workload):
    planned = static.plan(workload, CONDITIONS)
    assert planned is not None
    return {
        "engine": "autotvm", "implementation": "direct", "seconds": [3.0, 1.0, 2.0],
        "schedule": planned.schedule,
    }  # fmt: skip


def chosen(workload, record=None, *, wrong=(), policy=POLICY, share=0.0, **fields):
    inspector = Trusting(*wrong)
    (found,) = choose(
        [Asked(task(**fields), workload, record, share)], policy, CONDITIONS, inspector
    )
    return found, inspector


def test_a_record_is_first(workload, record):
    found, inspector = chosen(workload, record)
    assert (found.engine, found.seconds, found.reason) == ("autotvm", 2.0, "best record")
    assert (found.checked, found.rule, found.rejected) == (True, 0, ())
    assert inspector.asked == [["autotvm"]]


def test_without_a_record_the_fallback_serves(workload):
    found, _ = chosen(workload)
    assert (found.engine, found.seconds, found.reason) == ("static", None, "no record")


def test_what_is_wrong_falls_to_the_next(workload, record):
    found, inspector = chosen(workload, record, wrong=("autotvm", "static"))
    assert (found.engine, found.reason) == ("default", "static on direct is wrong")
    assert inspector.asked == [["autotvm"], ["static"], ["default"]]
    assert [entry["engine"] for entry in found.rejected] == ["autotvm", "static"]
    assert found.rejected[0]["reason"] == "off by 1"
    assert found.checked


def test_the_plain_loops_are_the_end_of_the_chain(workload):
    found, _ = chosen(workload, wrong=("static", "default"))
    assert (found.engine, found.schedule, found.checked) == ("none", None, False)
    assert found.module is workload


def test_the_rule_of_the_task_says_which_fallback(workload):
    heavy = Rule(match=Match(share=0.5), fallback=("default",))
    policy = Policy((heavy,), ("static",))
    assert chosen(workload, policy=policy, share=0.6)[0].engine == "default"
    found, _ = chosen(workload, policy=policy, share=0.4)
    assert (found.engine, found.rule) == ("static", None)


def test_an_implementation_that_is_not_allowed_is_not_chosen(workload, monkeypatch):
    plans = [*static.plans(workload, CONDITIONS)]
    other = [type(plan)("other", plan.schedule, plan.module) for plan in plans]
    monkeypatch.setattr(static, "plans", lambda *_: iter([*other, *plans]))
    assert chosen(workload)[0].implementation == "other"
    policy = Policy((Rule(implementations=("direct",)),), ("static", "default"))
    assert chosen(workload, policy=policy)[0].implementation == "direct"
