import subprocess
import sys
import time

import pytest

from autopipe.config.load import load
from autopipe.errors import ConfigError
from tests.config.conftest import GOOD
from tests.faults.hostile import HIDDEN
from tests.support.table import each_row


def test_a_good_file_becomes_a_pipeline(read):
    pipeline = read(GOOD)
    assert pipeline.name == "resnet"
    assert pipeline.model.inputs["data"].shape == (1, 3, 224, 224)
    assert pipeline.tuning.budget.trials == 1000
    assert pipeline.tuning.budget.time == 1800.0
    assert pipeline.tuning.measure.build_timeout == 20.0
    assert pipeline.gates.max_slowdown == {"onnxruntime": 1.5}


def test_null_switches_a_stage_off(read):
    assert read("version: 1\nname: a\nmodel: {path: m}\ntuning: null\n").tuning is None


def test_a_section_without_a_value_does_not_switch_it_off(refused):
    assert refused(GOOD + "package:\n") == ["f:9:9: package: no value; write null if that is meant"]


@pytest.mark.fault("A1", "A2", "A3", "A5", "A6", "A7", "A8")
@each_row(
    "line, says",
    [
        ("verify: {cases: 3, cases: 9}", "f:9:20: verify.cases: given twice, first on line 9"),
        ("name: again", "f:9:1: name: given twice, first on line 2; keep one of them"),
        ("tunning: {}", "f:9:1: tunning: unknown key; did you mean `tuning`?"),
        ("verify: {zz: 1}", "f:9:10: verify.zz: unknown key; known: reference, cases, seed"),
        ("verify: &a {}", "f:9:9: verify: `&a` is an anchor; leave it out"),
        ("verify: *a", "f:9:9: verify: `*a` is an alias; write it out"),
        ("verify: {<<: {}}", "f:9:10: verify: << is a merge key; write the fields out"),
        ("verify: !!str x", "f:9:9: verify: `!!str` is a tag; leave it out"),
        ("verify: !mine [x]", "f:9:9: verify: `!mine` is a tag; leave it out"),
        ("verify: {rtol: .nan}", "f:9:16: verify.rtol: .nan is not a finite number"),
        ("verify: {rtol: -1e-3}", "f:9:16: verify.rtol: -0.001 should be greater than or equal"),
        ("verify: {rtol: 1.5}", "f:9:16: verify.rtol: 1.5 should be less than or equal to 1"),
        ("verify: {cases: 1" + "0" * 400 + "}", "f:9:17: verify.cases: a number of 401 charac"),
        ("verify: {cases: no}", "f:9:17: verify.cases: no is a truth value to some"),
        ("verify: {cases: 010}", "f:9:17: verify.cases: 010 is not the same number"),
        ("verify: {cases: '3'}", "verify.cases: '3' should be a whole number; leave out the quo"),
        ("verify: {cases: 1e1}", "verify.cases: 10.0 should be a whole number; write 10"),
        ("verify: {cases: true}", "verify.cases: true should be a whole number"),
        ("verify: {cases: null}", "verify.cases: null should be a whole number"),
        ("verify: {rtol: true}", "verify.rtol: true should be a number"),
        ("verify: {reference: 1}", "verify.reference: 1 is not known; known: auto, onnxruntime, o"),
        ("verify: {reference: ONNXRT}", "verify.reference: 'ONNXRT' is not known"),
        ("tasks: {include_simple_task: 1}", "include_simple_task: 1 should be true or false"),
        ("tasks: {scheduler: Gradiant}", "'Gradiant' is not known; did you mean `gradient`?"),
        ("target: {mattr: +avx2}", "f:9:17: target.mattr: '+avx2' should be a list"),
        ("target: {mcpu: 12}", "f:9:16: target.mcpu: 12 should be text; put it in quotes"),
        ("target: {kind: LLVM}", "target.kind: 'LLVM' is not known; did you mean `llvm`?"),
        ("target: [llvm]", "f:9:9: target: a list should be a section of fields"),
        ("layout: [NHWC]", "f:9:9: layout: a list should be a mapping"),
        ("benchmark: {timeout: 12:30:00}", "benchmark.timeout: 12:30:00 is a number of base 60"),
        ("benchmark: {timeout: 10}", "f:9:22: benchmark.timeout: 10 has no unit; write 500ms,"),
        ("benchmark: {timeout: 1.5}", "f:9:22: benchmark.timeout: 1.5 has no unit; write"),
        ("benchmark: {timeout: 10 min}", "benchmark.timeout: '10 min' is not a duration; write"),
        ("benchmark: {timeout: 0s}", "'0s' should be longer than zero"),
        ("benchmark: {timeout: 9999999h}", "'9999999h' should be longer than zero, and a year a"),
        ("verify: {1: 2}", "f:9:10: verify: the key 1 is not text; put it in quotes"),
        ("verify: {on: 2}", "f:9:10: verify: on is a truth value to some YAML readers"),
        ("verify: {[a]: 2}", "f:9:10: verify: a key must be text"),
        ("? {a: b}\n: 2", "f:9:3: a key must be text"),
        ('"a\\0b": 2', "f:9:1: holds a NUL or half a character"),
        ('"\\e[31m": 2', "f:9:1: \\x1b[31m: unknown key"),
        ("verify: {", "f:10:1: not YAML: "),
        ("\tverify: {}", "f:9:1: a tab; YAML is indented with spaces"),
        ("verify:\n\tcases: 3", "f:10:1: a tab; YAML is indented with spaces"),
        ("verify: @a", "f:9:9: `@` cannot start a value; put it in quotes"),
        ("---\nversion: 1", "f:9:1: a second document; one file is one pipeline"),
        ("verify: \0", "f:9:9: U+0000 is not shown as it is read"),
        ("verify: \x07", "f:9:9: U+0007 is not shown as it is read"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_would_be_right(refused, line, says):
    (said,) = refused(GOOD + line + "\n")
    assert says in said
    assert said.startswith("f:")
    assert said.isprintable()


@pytest.mark.fault("A18")
@each_row("character", HIDDEN)
def test_what_is_hidden_in_a_comment_is_refused(refused, character):
    """Behind each of the first four, libyaml or PyYAML reads a line that git does not show."""
    for hidden in (f"# fine{character}target: {{linker: /tmp/evil}}\n", f"name: 'a{character}b'\n"):
        (said,) = refused(GOOD + hidden)
        assert f"U+{ord(character[0]):04X} is not shown as it is read" in said
        assert said.startswith("f:9:")
        assert said.isprintable()


def test_what_is_shown_may_be_of_any_script(read):
    text = GOOD + "# fichier\u00a0: mod\u00e8le, \u3000\u8aac\u660e \U0001f600\r\n"
    assert read(text) == read(GOOD)


@pytest.mark.fault("A8")
@each_row(
    "text, says",
    [
        ("", "f:1:1: nothing in it"),
        ("# only a comment\n", "f:1:1: nothing in it"),
        ("- version: 1\n", "f:1:1: a list should be a section of fields"),
        ("hello", "f:1:1: 'hello' should be a section of fields"),
        ("null", "f:1:1: null should be a section of fields"),
        ("%YAML 1.1\n---\n" + GOOD, "f:1:1: a % directive; leave it out"),
        ("version: 1\nname: Größe\n".encode("latin-1"), "f:2:9: not UTF-8; save the file as"),
        (GOOD.encode("utf-16"), "f:1:1: not UTF-8"),
        (GOOD + "#" * 1_000_000, "f:1:1: larger than 1 MB"),
    ],
)
def test_what_is_no_pipeline_file_at_all_is_refused(refused, text, says):
    (said,) = refused(text)
    assert says in said


def test_missing_fields_are_named_where_their_section_is(refused):
    assert refused("name: a\nmodel: {}\n") == [
        "f:1:1: version: is required, and missing",
        "f:2:1: model.path: is required, and missing",
    ]


@pytest.mark.parametrize("version", ["2", "true", "1.0", "'1'"])
def test_only_version_1_is_read(refused, version):
    (said,) = refused(GOOD.replace("version: 1", f"version: {version}"))
    assert said.startswith("f:1:10: version: ")
    assert said.endswith("is not a version this autopipe reads; write 1")


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(refused):
    said = refused(
        "version: 1\nname: a b\nmodel: {path: m, inputs: {x: {shape: [0, yes]}}}\n"
        "verify: {cases: 0, cases: 1, cazes: 1}\ngates: {max_slowdown: {onnx: 1}}\n"
    )
    assert [line.split(": ")[1] for line in said] == [
        "name",
        "model.inputs.x.shape.0",
        "model.inputs.x.shape.1",
        "verify.cases",
        "verify.cases",
        "verify.cazes",
        "gates.max_slowdown.onnx",
    ]


def test_the_number_of_lines_is_bounded(refused):
    said = refused(GOOD + "".join(f"key{number}: 1\n" for number in range(60)))
    assert len(said) == 51
    assert said[-1] == "f: and 10 more"


def test_the_length_of_a_line_is_bounded(refused):
    (said,) = refused(GOOD + f"{'k' * 900}: 1\n")
    assert len(said) < 700


@pytest.mark.fault("A8")
def test_a_byte_order_mark_is_accepted(read):
    assert read(b"\xef\xbb\xbf" + GOOD.encode()).name == "resnet"


def test_windows_line_ends_are_accepted(read):
    assert read(GOOD.replace("\n", "\r\n")) == read(GOOD)


@pytest.mark.fault("A10")
def test_a_dollar_is_no_variable(read, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    assert read(GOOD.replace("resnet.onnx", "${SECRET}.onnx")).model.path == "${SECRET}.onnx"


@pytest.mark.fault("A3")
def test_an_alias_bomb_costs_nothing(refused):
    levels = (f"k{n + 1}: &k{n + 1} [*k{n}, *k{n}, *k{n}, *k{n}]\n" for n in range(30))
    bomb = "k0: &k0 [x, x]\n" + "".join(levels)
    start = time.process_time()
    said = refused(GOOD + bomb)
    assert time.process_time() - start < 1
    assert "f:9:5: k0: `&k0` is an anchor; leave it out, or put it in quotes" in said


@pytest.mark.fault("A4")
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_refused_at_once(refused, opening):
    start = time.process_time()
    (*_, said) = refused("a: \n  " + opening * 100_000)
    assert time.process_time() - start < 1
    assert "nested too deep; 50 levels at most" in said


@pytest.mark.fault("A4", "A8")
@pytest.mark.parametrize("filler", ["a, ", "[], ", "{}, "])
def test_a_file_of_very_many_values_is_refused_soon(refused, filler):
    start = time.process_time()
    (said,) = refused(GOOD + "target: {mattr: [" + filler * 240_000 + "]}\n")
    assert time.process_time() - start < 2
    assert "too long; 20000 keys and values at most" in said


@pytest.mark.fault("A5")
def test_nothing_in_a_file_is_executed(refused, tmp_path):
    marker = tmp_path / "marker"
    refused(GOOD + f"verify: !!python/object/apply:os.system ['touch {marker}']\n")
    refused(GOOD + f"verify: !!python/object/new:pathlib.Path.touch ['{marker}']\n")
    assert not marker.exists()


@pytest.mark.fault("A13")
@pytest.mark.parametrize("name", ["nothing.yaml", ".", "nothing.yaml/inside", "a\0b", "x" * 5000])
def test_a_file_that_can_not_be_read_is_no_traceback(tmp_path, name):
    with pytest.raises(ConfigError, match="a pipeline file is needed"):
        load(tmp_path / name)


@pytest.mark.fault("A13")
def test_an_unreadable_file_is_no_traceback(file, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", denied)
    with pytest.raises(ConfigError, match="Permission denied"):
        load(file)


@pytest.mark.fault("E13")
def test_a_name_with_control_characters_can_not_talk_to_the_terminal(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "a\x1b[2J\nb.yaml")
    assert str(caught.value).isprintable()


def test_loading_needs_nothing_heavy(file):
    file.write_text(GOOD)
    code = (
        "import sys; from pathlib import Path; from autopipe.config.load import load;"
        "load(Path(sys.argv[1]));"
        "print(*{'tvm', 'onnx', 'onnxruntime', 'numpy', 'rich'} & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, file], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == ""
