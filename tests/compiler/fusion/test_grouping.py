"""The example in the docstring of `grouping` is true."""

import pytest

from autopipe.compiler.fusion.chains import Chain, Chains, FusionStep
from autopipe.compiler.fusion.grouping import Grouping

OPS = {
    "conv": "nn.conv2d",
    "add": "add",
    "relu": "nn.relu",
    "pool": "nn.max_pool2d",
    "dense": "matmul",
}


def steps():
    """Return a chain of ops, each of which reads the one before it."""
    readers = dict(zip(list(OPS)[1:], OPS, strict=False))
    return [
        FusionStep(
            name, op, name, tuple(filter(None, [readers.get(name)])), name in {"add", "relu"}
        )
        for name, op in OPS.items()
    ]


def grouping():
    return Grouping(steps(), [("conv", "add", "relu")])


def test_a_group_is_cut_above_what_follows():
    cut = grouping()
    cut.cut("conv", ["relu"])
    assert [group.steps for group in cut] == [("conv", "add"), ("relu",), ("pool",), ("dense",)]
    around = cut.around(["relu", "pool"])
    assert around.steps == ("relu", "pool")
    assert [piece.steps for piece in around.pieces] == [("relu",), ("pool",)]
    assert cut.of("relu").steps == ("relu",)


def test_what_is_fused_or_lies_between_comes_along():
    whole = grouping()
    with pytest.raises(ValueError, match=r"they bring nn\.conv2d, which the rule does not name"):
        whole.around(["relu", "pool"])
    whole.cut("conv", ["relu"])
    with pytest.raises(ValueError, match=r"they bring nn\.max_pool2d"):
        whole.around(["conv", "dense"])


def test_elementwise_ops_may_lie_between_those_of_a_pattern():
    chains = Chains(steps())
    (chain,) = chains.at("conv", ["nn.conv2d", "nn.relu"])
    assert chain == Chain(("conv", "relu"), ("conv", "add", "relu"))
    assert list(chains.at("conv", ["nn.conv2d", "nn.softmax"])) == []
