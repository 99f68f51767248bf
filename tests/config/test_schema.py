"""What is generated from the models: complete, current, and true."""

import re
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from pydantic import BaseModel

from autopipe.config.load import load
from autopipe.config.pipeline import Pipeline
from autopipe.config.schema import (
    PipelineFile,
    _tidy_schema,
    build_json_schema,
    format_field_table,
    list_section_keys,
)
from autopipe.config.sentences import read_field_docs
from docs.generate import generated, main
from tests.config.conftest import GOOD
from tests.support.table import each_row

ROOT = Path(__file__).parents[2]
PIPELINES = sorted((ROOT / "pipelines").glob("*.yaml"))


def sections(annotation=PipelineFile):
    """Yield the models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections(field.annotation)
    for part in getattr(annotation, "__args__", ()):
        yield from sections(part)


SECTIONS = sorted(set(sections()), key=lambda section: section.__name__)
FIELDS = [(section, name) for section in SECTIONS for name in section.model_fields]


class Loader(yaml.SafeLoader):
    """Reads 1e5 as editors do: YAML 1.2."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), "-+0123456789"
)


def errors(text):
    validator = jsonschema.Draft202012Validator(build_json_schema())
    return [error.json_path for error in validator.iter_errors(yaml.load(text, Loader))]


def test_the_grammar_has_its_sections():
    names = {section.__name__ for section in SECTIONS}
    assert {"PipelineFile", "Model", "Input", "Weights", "Budget", "Rule", "Match"} <= names


@each_row("section, name", FIELDS)
def test_every_field_has_its_sentence(section, name):
    sentence = read_field_docs(section).get(name)
    assert sentence, f"write a docstring below {section.__name__}.{name}"
    assert sentence.rstrip().endswith(".")


@each_row("section", SECTIONS)
def test_every_section_is_frozen_and_closed(section):
    assert section.model_config["frozen"]
    assert section.model_config["extra"] == "forbid"


@each_row("text", [GOOD, *(path.read_text() for path in PIPELINES)])
def test_a_pipeline_round_trips_through_json(read, text):
    pipeline = read(text)
    assert Pipeline.model_validate_json(pipeline.model_dump_json()) == pipeline
    assert Pipeline.model_validate(pipeline.model_dump(mode="json")) == pipeline


def test_defaults_are_valid_values(read):
    """Pydantic does not validate them."""
    text = "version: 1\nname: a\nmodel: {path: m, weights: {}, inputs: {x: {shape: []}}}\n"
    pipeline = read(text)
    assert Pipeline.model_validate_json(pipeline.model_dump_json()) == pipeline


def test_generated_files_are_current():
    stale = [path.name for path, text in generated(ROOT) if path.read_text("utf-8") != text]
    assert stale == [], "out of date; run: make gen"


def test_make_gen_writes_what_is_checked_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main()
    made = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert {(tmp_path / path).read_text() == (ROOT / path).read_text() for path in made} == {True}
    assert {path for path, _ in generated(Path())} == set(made)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(build_json_schema())


@each_row("path", PIPELINES)
def test_checked_in_pipelines_load_and_pass_the_schema(path):
    load(path)
    assert errors(path.read_text()) == []
    assert path.read_text().startswith("# yaml-language-server: $schema=../schemas/pipeline")


@pytest.mark.parametrize(
    "lines",
    [
        "verify: null",
        "tasks: {heuristics: {min_flops: 1e5}}",
        "layout: {conv2d: [NHWC, HWIO]}",
        "benchmark: {timeout: 500ms}",
        "target: {mattr: [+avx2], num_cores: null}",
        "target: {kind: cuda, arch: nvidia/nvidia-h100, num_cores: 2}",
    ],
)
def test_the_schema_accepts_what_load_accepts(read, lines):
    read(f"{GOOD}{lines}\n")
    assert errors(f"{GOOD}{lines}\n") == []


@each_row(
    "lines, path",
    [
        ("tunning: {}", "$"),
        ("verify: {cases: 0}", "$.verify"),
        ("verify: {cases: '3'}", "$.verify"),
        ("layout: {conv9d: [NHWC, HWIO]}", "$.layout"),
        ("layout: {conv2d: [NHWC]}", "$.layout"),
        ("benchmark: {timeout: 10}", "$.benchmark"),
        ("benchmark: {timeout: 10 min}", "$.benchmark"),
        ("benchmark: {against: [onnxruntime, onnxruntime]}", "$.benchmark"),
        ("target: {kind: rocm}", "$.target.kind"),
        ("package:\n  format: zip", "$.package"),
    ],
)
def test_the_schema_refuses_what_load_refuses(refused, lines, path):
    assert refused(f"{GOOD}{lines}\n")
    assert errors(f"{GOOD}{lines}\n") == [path]


def test_an_editor_sees_sentences_and_defaults_as_they_are_written():
    timeout = build_json_schema()["$defs"]["Benchmark"]["properties"]["timeout"]
    assert timeout["default"] == "5m"
    assert "abandoned" in timeout["description"]
    cores = build_json_schema()["$defs"]["Target"]["properties"]["num_cores"]
    assert "\n" not in cores["description"]


def test_a_field_may_have_any_name():
    schema = {"properties": {"default": {"type": "string"}, "description": {"type": "string"}}}
    _tidy_schema(schema)
    assert set(schema["properties"]) == {"default", "description"}


@pytest.mark.parametrize(
    ("at", "keys"),
    [
        (("model", "inputs", "gpu_0/data_0"), ("shape", "dtype", "value")),
        (
            ("schedules", "rules", 3, "match"),
            ("op", "kind", "attributes", "layout", "shape", "dtype", "share"),
        ),
        (("package",), ("format",)),
        (("name",), ()),
        (("no", "such"), ()),
    ],
)
def test_the_keys_of_a_section_are_known(at, keys):
    assert list_section_keys(at) == keys


def test_the_table_has_a_row_for_every_field():
    table = format_field_table()
    rows = {line.split("`")[1] for line in table.splitlines()[2:]}
    assert {"version", "model.inputs.NAME.shape", "schedules.rules.N.match.op"} <= rows
    assert len(rows) == len(FIELDS)
    assert all(line.count(" | ") == 3 for line in table.splitlines()[2:])
