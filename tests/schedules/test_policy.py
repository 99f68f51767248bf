import pytest

from autopipe.config.match import Match
from autopipe.config.schedules import Rule
from autopipe.op_info import Op, OpInfo
from autopipe.schedules.policy import Contender, Policy, allows, matches
from autopipe.tensor import Tensor
from tests.schedules.tasks import task

IMAGE = Tensor(shape=(1, 56, 56, 64), dtype="float32")
CLASSES = Tensor(shape=(1, 10), dtype="int64")
CONV = {"strides": [1, 1], "groups": 1, "data_layout": "NHWC"}
NONE = Rule(match=Match(op="nn.softmax"), engines=())


def conv():
    info = OpInfo(kind="opaque", ops=(Op(name="add"), Op(name="nn.conv2d", attributes=CONV)))
    return task().model_copy(update={"info": info, "inputs": (IMAGE,), "outputs": (CLASSES,)})


@pytest.mark.parametrize(
    ("rules", "ops", "position"),
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
    ("match", "fits"),
    [
        ({}, True),
        ({"kind": "opaque"}, True),
        ({"kind": "injective"}, False),
        ({"attributes": {"strides": (1, 1), "groups": 1}}, True),
        ({"attributes": {"strides": (2, 2), "groups": 1}}, False),
        ({"attributes": {"dilation": (1, 1)}}, False),
        ({"op": "add", "attributes": {"groups": 1}}, False),
        ({"op": "nn.*", "layout": "NHWC"}, True),
        ({"op": "add", "layout": "NHWC"}, False),
        ({"layout": "NCHW"}, False),
        ({"shape": (1, "*", "*", 64)}, True),
        ({"shape": (1, 10)}, True),
        ({"shape": (1, "*", "*", 32)}, False),
        ({"shape": ("*", "*", "*")}, False),
        ({"shape": (1, "56..", "..56", "64..64")}, True),
        ({"shape": (1, "57..", "*", "*")}, False),
        ({"shape": (1, "..55", "*", "*")}, False),
        ({"dtype": "int64"}, True),
        ({"dtype": "int8"}, False),
        ({"share": 0.2}, True),
        ({"share": 0.21}, False),
        ({"op": "nn.conv2d", "dtype": "float32", "share": 0.5}, False),
    ],
)
def test_all_that_a_match_gives_has_to_hold(match, fits):
    assert matches(Match(**match), conv(), 0.2) == fits


def test_a_symbolic_size_fits_what_is_left_open_only():
    dynamic = task().model_copy(update={"inputs": (Tensor(shape=(-1,), dtype="float32"),)})
    assert matches(Match(shape=("*",)), dynamic, 0.0)
    assert not matches(Match(shape=("0..",)), dynamic, 0.0)


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
    assert allows(rule, *Contender(*contender)) == may


def test_a_rule_may_have_a_fallback_of_its_own():
    policy = Policy((), ("static", "default"))
    assert policy.chain(Rule()) == ("static", "default")
    assert policy.chain(Rule(fallback=("default",))) == ("default",)


def test_a_rule_that_matches_nothing_is_told():
    rules = (Rule(match=Match(op="conv2d")), Rule(match=Match(share=0.3)), Rule())
    assert Policy(rules, ()).idle([(task(), 0.2)]) == [0, 1]
    assert Policy(rules, ()).idle([(task(ops=("conv2d",)), 0.4), (task(), 0.2)]) == []
