"""Several builds of one pipeline file."""

import pytest

from autopipe.config.load import load, load_builds
from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError
from tests.config.conftest import GOOD
from tests.config.test_schema import errors
from tests.support.table import each_row

BUILDS = GOOD + (
    "builds:\n"
    "  v2: {target: {mcpu: x86-64-v2}}\n"
    "  v3:\n"
    "    target: {mcpu: x86-64-v3, hardware: {l1: 32768}}\n"
    "    model: {inputs: {data: {shape: [8, 3, 224, 224]}}}\n"
    "  plain: {tuning: null, benchmark: null}\n"
    "  same: {}\n"
)


@pytest.fixture
def builds(file):
    """Load all builds of a text, with overrides."""

    def builds(text, *overrides):
        file.write_text(text)
        return load_builds(file, overrides)

    return builds


@pytest.fixture
def wrong(builds, file):
    """Return the lines of the refusal of a text with builds."""

    def wrong(text, *overrides):
        with pytest.raises(ConfigError) as caught:
            builds(text, *overrides)
        return str(caught.value).replace(str(file), "f").splitlines()

    return wrong


def test_a_build_is_the_file_with_its_own_fields(builds, read):
    found = builds(BUILDS)
    whole = read(GOOD)
    assert [(name, found[name].name) for name in found] == [
        ("v2", "resnet-v2"), ("v3", "resnet-v3"), ("plain", "resnet-plain"),
        ("same", "resnet-same"),
    ]  # fmt: skip
    assert found["v2"].target.mcpu == "x86-64-v2"
    assert found["v3"].target.hardware.l1 == 32768
    data = found["v3"].model.inputs["data"]
    assert (data.shape, data.dtype) == ((8, 3, 224, 224), "float32")
    assert found["same"] == whole.model_copy(update={"name": "resnet-same"})
    assert all(type(pipeline) is Pipeline for pipeline in found.values())


def test_a_stage_that_a_build_switches_off_takes_its_gates_along(builds):
    plain = builds(BUILDS)["plain"]
    assert (plain.tuning, plain.benchmark, plain.gates.max_slowdown) == (None, None, {})
    on = BUILDS.replace("tuning:\n  budget: {trials: 1000, time: 30m}", "tuning: null")
    assert builds(on.replace("same: {}", "same: {tuning: {}}"))["same"].tuning is not None


def test_a_list_replaces_the_one_of_the_file(builds):
    text = f"{GOOD}target: {{mattr: [+avx2, +fma]}}\nbuilds: {{a: {{target: {{mattr: [+avx]}}}}}}\n"
    assert builds(text)["a"].target.mattr == ("+avx",)


def test_the_command_line_beats_each_build(builds):
    found = builds(BUILDS, "target.mcpu=haswell", "tuning.seed=7", "name=net")
    assert {pipeline.target.mcpu for pipeline in found.values()} == {"haswell"}
    assert found["v2"].tuning.seed == 7
    assert found["v2"].name == "net-v2"


def test_the_command_line_sets_fields_of_one_build_and_adds_one(builds):
    found = builds(BUILDS, "builds.v2.target.num_cores=1", "builds.new.target.mcpu=znver4")
    cores = {name: pipeline.target.num_cores for name, pipeline in found.items()}
    assert cores == {"v2": 1, "v3": None, "plain": None, "same": None, "new": None}
    assert found["new"].target.mcpu == "znver4"
    assert list(builds(GOOD, "builds.a.verify=null")) == ["a"]


def test_a_file_without_builds_has_one_pipeline(builds, read):
    assert builds(GOOD) == {None: read(GOOD)}
    assert builds(f"{GOOD}builds: {{}}\n") == {None: read(GOOD)}


def test_a_build_is_chosen_by_its_name(builds, file):
    found = builds(BUILDS)
    assert load(file, build="v3") == found["v3"]
    for name, said in [
        (None, "has builds: choose one, --build v2"),
        ("plan", "has no build plan; did you mean `plain`?"),
        ("arm64", "has no build arm64; it has v2, v3, plain, same"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(file, build=name)
        assert str(caught.value) == f"{file}: {said}"
    file.write_text(GOOD)
    with pytest.raises(ConfigError, match="has no build v3; it has no builds"):
        load(file, build="v3")


@each_row(
    "old, new, line",
    [
        ("x86-64-v3", "x86-64-v33", "f:12:20: builds.v3.target.mcpu: 'x86-64-v33' is no processor"),
        ("null, b", "{bugdet: {}}, b", "f:14:20: builds.plain.tuning.bugdet: unknown key; did you"),
        ("trials: 1000", "trials: 0", "f:7:20: tuning.budget.trials: 0 should be greater than or"),
        ("same: {}", "same: {name: x}", "f:15:16: builds.same.name: 'x' is the same for all"),
        ("same: {}", "same: {version: 1}", "f:15:19: builds.same.version: 1 is the same for all"),
        ("same: {}", "same: null", "f:15:9: builds.same: null should be a mapping"),
        ("same: {}", "v2: {}", "f:15:3: builds.v2: given twice, first on line 10; keep one"),
        ("same: {}", "a b: {}", "f:15:3: builds.a b: 'a b' should match pattern '^[A-Za-z0-9]"),
        ("name: resnet", "name: a b", "f:2:7: name: 'a b' should match pattern '^[A-Za-z0-9]"),
        ("same: {}", "same: {gates: {max_slowdown: {openvino: 2}}}",
         "f:15:43: builds.same.gates.max_slowdown.openvino: 2.0 cannot be checked: `benchmark."),
        ("gates:", "gatess: {}\ngates:", "f:8:1: gatess: unknown key; did you mean `gates`?"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_build_and_once_if_the_file_makes_it(wrong, old, new, line):
    assert old in BUILDS
    (told,) = wrong(BUILDS.replace(old, new, 1))
    assert told.startswith(line)


def test_a_field_of_the_file_that_is_wrong_in_one_build_only_names_it(wrong):
    local = "tuning:\n  measure: {runner: farm, scheduler: 'tls://a:1', label: a}\n"
    text = GOOD.replace("tuning:\n", local).replace("gates", "target: {num_cores: 2}\ngates")
    text += "builds: {v3: {target: {mcpu: x86-64-v3}}, here: {}}\n"
    (line,) = [line for line in wrong(text) if "native" in line]
    assert "builds.here.target.mcpu: 'native' is this machine" in line


def test_a_mistake_of_the_command_line_is_told_once(wrong):
    assert wrong(BUILDS, "targett=3") == ["--set targett: unknown key; did you mean `target`?"]
    (line,) = wrong(BUILDS, "builds.v4.target.mcpu=x86")
    assert line.startswith("--set builds.v4.target.mcpu: 'x86' is no processor")


def test_a_name_that_gets_too_long_says_by_which_build(wrong):
    (line,) = wrong(BUILDS.replace("resnet", "r" * 95, 1))
    assert line.startswith("f:2:7: builds.plain.name: 'rrr")


@each_row("value", ["3", "null", "[v2]", "{v2: 3}"])
def test_builds_are_a_mapping_of_mappings(wrong, value):
    (line,) = wrong(f"{GOOD}builds: {value}\n")
    assert "should be a mapping" in line
    assert errors(f"{GOOD}builds: {value}\n")


def test_an_editor_completes_the_fields_of_a_build_and_requires_none():
    assert errors(BUILDS) == []
    assert errors(BUILDS.replace("mcpu: x86-64-v2", "mpcu: x")) == ["$.builds.v2.target"]
    assert errors(BUILDS.replace("same: {}", "same: {name: x}")) == ["$.builds.same"]
    assert errors(BUILDS.replace("same: {}", "same: {gates: {regression: {max: 2}}}")) == []
