import pytest

from autopipe.config.match import Match
from autopipe.config.schedules import Rule
from tests.config.conftest import GOOD
from tests.support.table import each_row

RULES = GOOD + "schedules: {rules: [{match: {op: conv2d}, engines: []}, {}]}\n"


def test_the_command_line_beats_the_file(read):
    pipeline = read(GOOD, "tuning.budget.trials=64", "tuning.seed=7", "name=other")
    assert pipeline.tuning.budget.trials == 64
    assert pipeline.tuning.budget.time == 1800.0
    assert pipeline.tuning.seed == 7
    assert pipeline.name == "other"


def test_the_last_of_two_wins(read):
    assert read(GOOD, "tuning.seed=1", "tuning.seed=2").tuning.seed == 2


def test_a_section_that_the_file_leaves_out_is_made(read):
    assert read(GOOD, "verify.cases=9").verify.cases == 9
    assert read(GOOD, "layout.conv2d=[NHWC, HWIO]").layout == {"conv2d": ("NHWC", "HWIO")}


def test_null_switches_a_stage_off_and_a_field_switches_it_on(read):
    assert read(GOOD, "tuning=null").tuning is None
    off = GOOD.replace("tuning:\n  budget: {trials: 1000, time: 30m}", "tuning: null")
    assert read(off, "tuning.budget.trials=5").tuning.budget.trials == 5


def test_a_stage_that_is_switched_off_takes_its_gates_along(read):
    gates = "gates: {searched_share: 0.5, max_slowdown: {best: 2}, regression: {baseline: b.json}}"
    file = GOOD.replace("gates: {max_slowdown: {onnxruntime: 1.5}}", gates)
    assert gates in file
    left = read(file, "benchmark=null").gates
    assert (left.searched_share, left.max_slowdown, left.regression) == (0.5, {}, None)
    left = read(file, "tuning=null").gates
    assert (left.searched_share, left.max_slowdown) == (None, {"best": 2})
    assert read(GOOD, "benchmark=null", "tuning=null").benchmark is None


def test_the_value_may_hold_an_equals_sign(read):
    assert read(GOOD, "model.path=a=b.onnx").model.path == "a=b.onnx"


def test_a_key_with_dots_is_found_as_the_file_writes_it(read):
    dotted = GOOD.replace("data:", "data.0:")
    assert read(dotted, "model.inputs.data.0.shape=[2]").model.inputs["data.0"].shape == (2,)
    assert read(dotted, "model.inputs.data.0.shape.0=8").model.inputs["data.0"].shape[0] == 8


def test_an_entry_of_a_list_is_named_by_its_position(read):
    rules = read(RULES, "schedules.rules.0.engines=[ansor]").schedules.rules
    assert rules == (Rule(match=Match(op="conv2d"), engines=("ansor",)), Rule())


@pytest.mark.fault("A2", "A6")
@each_row(
    "setting, says",
    [
        ("tuning.budget.trails=3", "--set tuning.budget.trails: unknown key; did you mean `tria"),
        ("tuning.budget.trials='3'", "--set tuning.budget.trials: '3' should be a whole number"),
        ("tuning.budget.trials=010", "--set tuning.budget.trials: 010 is not the same number"),
        ("tuning.budget.time=3", "--set tuning.budget.time: 3 has no unit"),
        ("tuning.budget.trials=", "--set tuning.budget.trials: nothing in it; write null"),
        ("tuning.budget.trials=&a 3", "--set tuning.budget.trials: `&a` is an anchor"),
        ("tuning.budget.trials=[", "--set tuning.budget.trials: not YAML"),
        ("tuning.budget={trails: 3}", "--set tuning.budget: tuning.budget.trails: unknown key"),
        ("tunning.seed=1", "--set tunning.seed: tunning: unknown key; did you mean `tuning`?"),
        ("model={format: onnx}", "--set model: model.path: is required, and missing"),
        ("target.mattr.0=+a", "--set target.mattr.0: target.mattr: a mapping should be a list"),
        ("version.x=1", "--set version.x: x is not in a section, but in 1"),
        ("schedules.rules.7.engines=[]", "7 is not the position of an entry; there is 0 to 1"),
        ("schedules.rules.-1.engines=[]", "-1 is not the position of an entry"),
        ("schedules.rules.²=[]", "² is not the position of an entry"),
        ("schedules.rules.0.match.op=*", "--set schedules.rules.0.match.op: "),
        ("noise", "--set noise: write it as --set section.field=value"),
        ("=3", "--set =3: write it as --set section.field=value"),
        ("a..b=3", "--set a..b: write it as --set section.field=value"),
        ("\udcff=1", "--set \\udcff: holds a NUL or half a character"),
    ],
)
def test_a_mistake_is_named_by_its_option(refused, setting, says):
    (said,) = refused(RULES, setting)
    assert says in said
    assert said.startswith("--set ")


def test_mistakes_of_file_and_options_are_told_together(refused):
    said = refused(GOOD + "foo: 1\n", "bar=1", "noise")
    assert said[0].startswith("f:9:1: foo: unknown key")
    assert said[1].startswith("--set bar: unknown key")
    assert said[2].startswith("--set noise: ")
    assert len(said) == 3


def test_an_option_does_not_hide_that_the_file_is_no_yaml(refused):
    (said,) = refused("a: ]", "tuning.seed=1")
    assert said.startswith("f:1:4: not YAML")


def test_a_mistake_that_an_option_replaces_is_not_told(read):
    assert read(GOOD + "verify: {cases: many}\n", "verify.cases=2").verify.cases == 2
