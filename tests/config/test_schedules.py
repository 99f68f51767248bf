"""The grammar of the schedule policy."""

from pathlib import Path

from autopipe.config.schedules import Rule
from tests.config.conftest import GOOD
from tests.support.table import each_row


def rules(*texts):
    return GOOD + f"schedules: {{rules: [{', '.join(texts)}]}}\n"


def test_a_rule_says_all_there_is_to_say(read):
    match = (
        "{op: nn.conv2d*, kind: opaque, attributes: {strides: [1, 1], groups: 1}, layout: NHWC,"
        " shape: [1, '*', '8..', 64], dtype: float32, share: 0.05}"
    )
    text = rules(
        f"{{match: {match}, engines: [autotvm, ansor], implementations: [dir*], select: best,"
        " shares: {autotvm: 0.5}, fallback: [default]}",
        "{match: {op: nn.dense}, select: first}",
    )
    first, second = read(text).schedules.rules
    assert first.match.attributes == {"strides": (1, 1), "groups": 1}
    assert first.match.shape == (1, "*", "8..", 64)
    assert (first.shares, first.fallback) == ({"autotvm": 0.5}, ("default",))
    assert (second.engines, second.select) == (("autotvm", "ansor"), "first")


@each_row(
    "rule, says",
    [
        ("{engines: [anzor]}", "rules.0.engines.0: 'anzor' is not known; did you mean `ansor`?"),
        ("{engines: [static]}", "'static' is not known"),
        ("{implementations: [dirct]}", "rules.0.implementations.0: 'dirct' is not known; did you"),
        ("{implementations: ['x*']}", "'x*' is not known; known: direct, wino"),
        ("{implementations: []}", "implementations: a list should have at least 1 item"),
        ("{select: fastest}", "'fastest' is not known; known: best, first"),
        ("{match: {opp: x}}", "unknown key; did you mean `op`?"),
        ("{match: {shape: [-1]}}", "-1 is no size; write 64, '*', '8..64', '8..' or '..64'"),
        ("{match: {shape: ['x']}}", "'x' is no size; write 64"),
        ("{match: {share: 2}}", "match.share: 2 should be less than or equal to 1"),
        ("{match: {kind: conv}}", "'conv' is not known; known: elementwise"),
        ("{shares: {ansor: 0}}", "shares.ansor: 0 should be greater than 0"),
        ("{shares: {ansr: 0.1}}", "'ansr' is not known; did you mean `ansor`?"),
        ("{engines: [ansor], shares: {autotvm: 0.1}}", "0.1 cannot be spent: `engines` lacks"),
        ("{shares: {ansor: 0.7, autotvm: 0.5}}", "should sum to 1 at most, not to 1.2"),
        ("{shares: {ansor: 0.7}, select: first}", "divides nothing: `select: first` tunes one"),
        ("{fallback: []}", "fallback: a list should have at least 1 item"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(refused, rule, says):
    (said,) = refused(rules(rule))
    assert said.startswith("f:9:")
    assert says in said


def test_a_rule_behind_one_for_the_same_tasks_is_refused(refused):
    (said,) = refused(rules("{match: {op: a}}", "{match: {op: b}}", "{match: {op: a}}"))
    assert said.endswith("never applies: rule 0 before it matches the same tasks")


def test_installed_packages_bring_engines_and_implementations(read, monkeypatch):
    from autopipe import extensions

    found = [
        extensions.Extension(group, "mine", "mine", "1", None)  # type: ignore[arg-type]
        for group in (extensions.ENGINES, extensions.IMPLEMENTATIONS)
    ]
    monkeypatch.setattr(extensions, "installed", lambda: tuple(found))
    (rule,) = read(rules("{engines: [mine], implementations: [mi*]}")).schedules.rules
    assert rule == Rule(engines=("mine",), implementations=("mi*",))


def test_our_names_are_those_that_there_are():
    """The grammar knows them without TVM."""
    from autopipe.config import schedules
    from autopipe.schedules.engines.registry import ENGINES
    from autopipe.schedules.implementations import IMPLEMENTATIONS
    from autopipe.schedules.implementations.implementation import DIRECT
    from tests.schedules.tasks import CONDITIONS

    names = (DIRECT, *(each.NAME for each in IMPLEMENTATIONS))
    assert names == schedules.IMPLEMENTATIONS
    assert tuple(ENGINES) == schedules.ENGINES
    for name in schedules.ENGINES:
        assert ENGINES[name](CONDITIONS).name == name


def test_the_policy_of_the_page_is_valid(read):
    text = (Path(__file__).parents[2] / "docs/concepts/policy.md").read_text()
    _, _, example = text.partition("```yaml\nschedules:")
    policy = read(f"{GOOD}schedules:{example.partition('```')[0]}").schedules
    assert [rule.engines for rule in policy.rules] == [("autotvm", "ansor"), (), ("autotvm",)]
