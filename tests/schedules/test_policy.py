import pytest

from autopipe.config.match import Match
from autopipe.config.schedules import Rule
from autopipe.schedules.policy import Contender, Policy, is_allowed
from tests.schedules.tasks import task
from tests.support.table import each_row

NONE = Rule(match=Match(op="nn.softmax"), engines=())


@each_row(
    "rules, ops, position",
    [
        ((Rule(),), ("nn.conv2d",), 0),
        ((Rule(),), (), 0),
        ((), ("nn.conv2d",), None),
        ((NONE, Rule()), ("nn.softmax",), 0),
        ((NONE, Rule()), ("add", "nn.softmax"), 0),
        ((NONE, Rule()), ("add",), 1),
        ((Rule(match=Match(op="nn.conv*")),), ("add", "nn.conv2d"), 0),
        ((Rule(match=Match(op="NN.CONV*")),), ("nn.conv2d",), None),
    ],
)
def test_the_first_rule_that_matches_an_op_decides(rules, ops, position):
    found, rule = Policy(rules, ("default",)).rule(task(ops=ops), 0.0)
    assert found == position
    assert rule == (Rule(engines=()) if position is None else rules[position])


@pytest.mark.parametrize(
    ("globs", "contender", "may"),
    [
        (None, ("autotvm", "winograd4"), True),
        (None, ("static", "winograd4"), True),
        (None, ("ansor", "winograd4"), False),
        (None, ("ansor", "direct"), True),
        (("*",), ("ansor", "winograd4"), True),
        (("direct",), ("autotvm", "winograd4"), False),
        (("x", "wino*"), ("autotvm", "winograd4"), True),
    ],
)
def test_implementations_are_those_of_the_rule(globs, contender, may):
    rule = Rule().model_copy(update={"implementations": globs})
    assert is_allowed(rule, *Contender(*contender)) == may


def test_a_rule_may_have_a_fallback_of_its_own():
    policy = Policy((), ("static", "default"))
    assert policy.chain(Rule()) == ("static", "default")
    assert policy.chain(Rule(fallback=("default",))) == ("default",)


def test_a_rule_that_matches_nothing_is_told():
    rules = (Rule(match=Match(op="conv2d")), Rule(match=Match(share=0.3)), Rule())
    assert Policy(rules, ()).idle([(task(), 0.2)]) == [0, 1]
    assert Policy(rules, ()).idle([(task(ops=("conv2d",)), 0.4), (task(), 0.2)]) == []
