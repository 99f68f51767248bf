import pytest

from autopipe.config.schedules import Match, Rule
from autopipe.schedules.policy import engines_for
from tests.schedules.tasks import task

NONE = Rule(match=Match(op="nn.softmax"), engines=())


@pytest.mark.parametrize(
    ("rules", "ops", "engines"),
    [
        ((Rule(),), ("nn.conv2d",), ("ansor",)),
        ((Rule(),), (), ("ansor",)),
        ((), ("nn.conv2d",), ()),
        ((NONE, Rule()), ("nn.softmax",), ()),
        ((NONE, Rule()), ("add", "nn.softmax"), ()),
        ((NONE, Rule()), ("add",), ("ansor",)),
        ((Rule(match=Match(op="nn.conv*")),), ("add", "nn.conv2d"), ("ansor",)),
        ((Rule(match=Match(op="NN.CONV*")),), ("nn.conv2d",), ()),
    ],
)
def test_the_first_rule_that_matches_an_op_decides(rules, ops, engines):
    assert engines_for(task(ops=ops), rules) == engines
