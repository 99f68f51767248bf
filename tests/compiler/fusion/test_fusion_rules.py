"""Rules on small graphs: what is joined, what is cut, what is said."""

from autopipe.compiler.fusion.chains import FusionStep
from autopipe.compiler.fusion.fusion_rules import FusionRules, apply_rules
from autopipe.compiler.fusion.grouping import Grouping

SIMPLE = ("add", "relu", "scale")


def graph(text):
    """Steps `name: op of names`, one a line."""
    steps = []
    for line in text.strip().splitlines():
        name, _, rest = line.strip().partition(": ")
        op, *reads = rest.split()
        steps.append(FusionStep(name, op, name, tuple(reads), simple=op in SIMPLE))
    return steps


def applied(steps, fused=(), **rules):
    """Return the groups of more than one step, and what was said."""
    said: list[str] = []
    grouping = Grouping(steps, [group.split() for group in fused])
    apply_rules(
        FusionRules(**{k: [r.split() for r in v] for k, v in rules.items()}),
        steps,
        grouping,
        said.append,
    )
    return [" ".join(group.steps) for group in grouping if len(group.steps) > 1], said


CHAIN = graph("""
    a: conv
    b: relu a
    c: conv b
    d: relu c
    e: conv d
    f: relu e
    g: conv f
    h: relu g
""")
PAIRS = ["a b", "c d", "e f", "g h"]


def test_chains_are_joined_with_what_was_fused_and_do_not_overlap():
    assert applied(CHAIN, PAIRS, join=["conv conv"]) == (["a b c d", "e f g h"], [])
    assert applied(CHAIN, PAIRS, join=["conv relu conv relu"]) == (["a b c d", "e f g h"], [])


def test_without_rules_nothing_is_changed():
    assert applied(CHAIN, PAIRS) == (PAIRS, [])


def test_a_glob_fits_many_ops_and_nothing_that_sums_is_skipped():
    steps = graph("""
        a: matmul
        b: scale a
        c: softmax b
        d: matmul c
    """)
    assert applied(steps, ["a b"], join=["mat* soft* matmul"]) == (["a b c d"], [])
    groups, said = applied(steps, ["a b"], join=["matmul matmul"])
    assert groups == ["a b"]
    assert said == [
        "fusion.join.0 [matmul, matmul]: matches nothing: the nearest is matmul, which feeds scale"
    ]


def test_what_is_read_elsewhere_may_be_joined():
    steps = graph("""
        a: norm
        b: matmul a
        c: add a b
    """)
    assert applied(steps, join=["norm matmul"]) == (["a b"], [])
    assert applied(steps, ["b c"], join=["norm matmul"]) == (["a b c"], [])


DIAMOND = """
    a: matmul
    b: {between} a
    c: add a b
    d: matmul c
"""


def test_what_lies_between_is_taken_along_if_it_is_simple():
    steps = graph(DIAMOND.format(between="relu"))
    assert applied(steps, ["a", "c"], join=["matmul add matmul"]) == (["a b c d"], [])


def test_a_group_that_would_wait_for_itself_is_not_made():
    steps = graph(DIAMOND.format(between="conv"))
    groups, said = applied(steps, join=["matmul add matmul"])
    assert groups == []
    (text,) = said
    assert text == (
        "fusion.join.0 [matmul, add, matmul]: 1 of its matches stay as they are: "
        "they bring conv, which the rule does not name"
    )


def test_what_is_fused_with_a_chain_brings_no_reduction():
    """As where two convolutions meet in a residual add, which is fused with one of them."""
    steps = graph("""
        a: conv
        b: conv
        c: add a b
        d: matmul c
    """)
    groups, (text,) = applied(steps, ["b c"], join=["conv matmul"])
    assert groups == ["b c d"]
    assert "they bring conv, which the rule does not name" in text


def test_groups_that_would_wait_for_each_other_are_not_made():
    """What was fused counts as a whole: it reads the one product and feeds the other."""
    steps = graph("""
        p: conv
        a: matmul
        q: add p a
        c: matmul a p
    """)
    groups, (text,) = applied(steps, ["p q"], join=["matmul matmul"])
    assert groups == ["p q"]
    assert "they bring conv, which the rule does not name" in text


def test_what_lies_between_may_be_taken_by_another_rule():
    steps = graph("""
        a: matmul
        b: relu a
        d: scale b
        c: softmax a d
    """)
    groups, (text,) = applied(steps, join=["relu scale", "matmul softmax"])
    assert groups == ["b d"]
    assert "is taken by fusion.join.0 [relu, scale]" in text


def test_the_first_rule_that_takes_an_op_has_it_and_that_is_said():
    groups, said = applied(CHAIN, PAIRS, join=["conv relu conv relu", "conv relu conv"])
    assert groups == ["a b c d", "e f g h"]
    assert len(said) == 1
    assert "fusion.join.1 [conv, relu, conv]: " in said[0]
    assert "conv is taken by fusion.join.0 [conv, relu, conv, relu]" in said[0]


def test_a_second_rule_has_what_the_first_leaves():
    steps = [*CHAIN, *graph("x: norm\ny: conv x\n")]
    groups, said = applied(steps, PAIRS, join=["conv conv", "norm conv"])
    assert groups == ["a b c d", "e f g h", "x y"]
    assert said == []


def test_a_cut_is_above_the_second_op():
    steps = graph("""
        a: conv
        b: add a
        c: relu b
        d: scale c
    """)
    assert applied(steps, ["a b c d"], apart=["conv relu"]) == (["a b", "c d"], [])
    assert applied(steps, ["a b c d"], apart=["conv add relu scale"]) == ([], [])


def test_what_a_cut_leaves_without_connection_is_apart_too():
    steps = graph("""
        a: conv
        b: scale
        c: add b
        d: relu a
        e: add d c
    """)
    assert applied(steps, ["a b c d e"], apart=["conv relu"]) == (["b c", "d e"], [])


def test_ops_that_are_apart_already_are_a_match():
    steps = graph("a: norm\nb: matmul a\n")
    assert applied(steps, apart=["norm matmul"]) == ([], [])
    (said,) = applied(steps, apart=["matmul norm"])[1]
    assert said == (
        "fusion.apart.0 [matmul, norm]: matches nothing: the nearest is matmul, which feeds nothing"
    )
    (said,) = applied(steps, apart=["conv norm"])[1]
    assert said == "fusion.apart.0 [conv, norm]: matches nothing: there is no conv"


def test_what_is_kept_apart_is_not_joined():
    groups, said = applied(CHAIN, PAIRS, join=["conv relu conv relu"], apart=["relu conv"])
    assert groups == PAIRS
    assert len(said) == 1
    assert "fusion.apart.0 [relu, conv] keeps apart relu and conv" in said[0]


def test_an_op_of_several_calls_is_matched_and_joined_whole():
    steps = [
        FusionStep("a", "conv", "a", (), simple=False),
        FusionStep("v1", "variance", "v3", ("a",), simple=False),
        FusionStep("v2", "variance", "v3", ("a", "v1"), simple=True),
        FusionStep("v3", "variance", "v3", ("v2",), simple=False),
        FusionStep("b", "conv", "b", ("v3",), simple=False),
    ]
    assert applied(steps, ["a v1"], join=["conv variance"])[0] == ["a v1 v2 v3"]
    assert applied(steps, join=["variance conv"])[0] == ["v1 v2 v3 b"]
    assert applied(steps, join=["conv conv"])[0] == []
    assert applied(steps, join=["variance variance"])[0] == []


def test_what_can_not_be_moved_is_said():
    steps = [
        FusionStep("a", "topk", "a", (), simple=False, obstacle="has several results"),
        FusionStep("b", "relu", "b", ("a",), simple=True),
    ]
    (said,) = applied(steps, join=["topk relu"])[1]
    assert said.endswith("1 of its matches stay as they are: topk has several results")
    groups, (said,) = applied(steps, ["a b"], apart=["topk relu"])
    assert groups == ["a b"]
    assert said.endswith("1 of its matches stay as they are: topk has several results")
