"""The example in the docstring of `grouping` is true."""

import random

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


def draw_steps(numbers, count):
    """Draw steps that each read one or two of the four before it."""
    names = [f"s{at}" for at in range(count)]
    reads = [
        tuple({numbers.choice(names[max(0, at - 4) : at]) for _ in range(min(at, 2))})
        for at in range(count)
    ]
    return [
        FusionStep(name, "add", name, read, simple=True)
        for name, read in zip(names, reads, strict=True)
    ]


def find_between(drawn, grouping, members):
    """Find the steps on paths between members through whole groups of the graph."""
    reads = {step.name: step.reads for step in drawn}
    readers = {name: [s.name for s in drawn if name in s.reads] for name in reads}

    def reach(neighbours):
        reached: set[str] = set()
        waiting = set(members)
        while waiting:
            new = {name for step in waiting for name in neighbours[step]} - members
            groups = {name for step in new for name in grouping.of(step).steps}
            waiting = groups - reached
            reached |= groups
        return reached

    return reach(reads) & reach(readers)


@pytest.mark.parametrize("seed", range(200))
def test_steps_between_are_those_of_the_whole_graph(seed):
    numbers = random.Random(seed)
    drawn = draw_steps(numbers, 24)
    drawn_grouping = Grouping(drawn, [])
    for _ in range(12):
        picked = [f"s{at}" for at in numbers.sample(range(len(drawn)), 2)]
        members = {name for step in picked for name in drawn_grouping.of(step).steps}
        group = drawn_grouping.around(picked)
        assert set(group.steps) == members | find_between(drawn, drawn_grouping, members)
        if len(group.steps) < 6:
            drawn_grouping.unite(group)
